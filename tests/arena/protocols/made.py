"""Protocols, datasets and agents that are made small, for tests.

Shapes: B episodes, A agents, C channels, N rows, V symbols.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ludus.arena.agents.agent import Agent, AgentOutput
from ludus.arena.agents.body import Rows
from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.playing.dataset import ArenaDataset
from ludus.arena.playing.environment import MessageEnvironment
from ludus.arena.protocol import ProtocolHandler
from ludus.config.families import listed
from ludus.config.registry import find
from ludus.config.sections import validate

KEYS: dict[str, Any] = {
    "force_guess": None,
    "verifier_reward": 2.0,
    "verifier_incorrect_reward": -3.0,
    "verifier_terminated_reward": -5.0,
    "shared_reward": False,
    "prover_reward": 7.0,
    "min_message_rounds": 0,
    "verifier_continue_reward": 0.5,
}
OWN: dict[str, dict[str, Any]] = {
    "solo_verifier": {},
    "adp": {},
    "merlin_arthur": {},
    "nip": {"max_message_rounds": 4, "verifier_first": False},
    "mnip": {
        "max_message_rounds": 4,
        "verifier_first": False,
        "sequential": False,
        "prover0_first": None,
    },
    "debate": {
        "max_message_rounds": 6,
        "verifier_first": False,
        "sequential": True,
        "prover0_first": True,
        "provers_hear_each_other": True,
    },
    "multi_channel_test": {"max_message_rounds": 4},
}
SPOKEN = sorted(kind for kind in listed("protocol") if kind != "parallel")
"""The protocols in which agents speak: in a parallel env they act instead."""
FOR_FORETELLING = {
    "simulator_reward": 0.25,
    "adversary_penalty": 0.125,
    "prover_simulated_reward": 11.0,
}


def section(kind: str, **changes: object) -> dict[str, Any]:
    """Return the section of a protocol, all rewards of which are different."""
    if kind == "zero_knowledge":
        own: dict[str, Any] = {"base": section("nip"), **FOR_FORETELLING}
        return {"kind": kind, **own, **changes}
    known = find("protocol", kind).Config.model_fields
    keys = {name: value for name, value in KEYS.items() if name in known}
    found = {"kind": kind, **keys, **OWN[kind], **changes}
    if "sequential" in changes and "prover0_first" not in changes:
        found["prover0_first"] = True if changes["sequential"] else None
    return found


def protocol(kind: str, **changes: object) -> ProtocolHandler:
    """Return the handler of a protocol."""
    cls = find("protocol", kind)
    made: ProtocolHandler = cls(validate(cls.Config, section(kind, **changes), source="the test"))
    return made


class Mute(Agent):
    """Likes all actions alike; it is only there to be shown something."""

    def __init__(self, num_channels: int, num_symbols: int) -> None:
        super().__init__()
        self.shape = num_channels, num_symbols

    def policy(self, rows: Rows) -> AgentOutput:
        count = len(rows["round"])
        return AgentOutput(torch.zeros(count, 3), torch.zeros(count, *self.shape))


def mute_agents(handler: ProtocolHandler, *data: str, num_symbols: int = 3) -> CombinedAgents:
    """Return the agents of a protocol, none of whom has anything to say."""
    channels = len(handler.message_channel_names)
    return CombinedAgents(
        {name: Mute(channels, num_symbols) for name in handler.agent_names}, handler, data
    )


def environment(handler: ProtocolHandler, *, num_envs: int = 24) -> MessageEnvironment:
    """Return episodes about rows of one number."""
    dataset = ArenaDataset({"x": torch.arange(6)[:, None].float()}, torch.arange(6) % 2)
    return MessageEnvironment(
        dataset, handler, num_envs=num_envs, seed=0, name="test", device=torch.device("cpu")
    )


def said_by(handler: ProtocolHandler, decision: int, count: int = 1) -> Tensor:
    """Return (B, A, 1 + C) actions in which every agent decides so, and says nothing much."""
    channels = len(handler.message_channel_names)
    action = torch.zeros(count, len(handler.agent_names), 1 + channels, dtype=torch.int64)
    action[..., 0] = decision
    return action


def gains(
    handler: ProtocolHandler,
    round_index: int,
    decision: int,
    y: int,
    *,
    seed: int = 0,
    is_over: bool = False,
) -> dict[str, float]:
    """Return what each agent gains in a round in which all agents decide so."""
    outcome = handler.step(
        round_index,
        said_by(handler, decision),
        torch.tensor([y]),
        torch.tensor([is_over]),
        torch.tensor([seed]),
    )
    return dict(zip(handler.agent_names, outcome.rewards[0].tolist(), strict=True))


def order(handler: ProtocolHandler, seed: int = 0) -> list[str]:
    """Return, for each round, who speaks in which channel: 'prover:main', say."""
    found = []
    for index in range(handler.max_message_rounds):
        speaks_AC = handler.speakers(index, torch.tensor([seed]))[0]
        places = speaks_AC.nonzero().tolist()
        names, channels = handler.agent_names, handler.message_channel_names
        found.append(" ".join(f"{names[agent]}:{channels[channel]}" for agent, channel in places))
    return found
