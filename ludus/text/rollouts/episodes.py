"""Episodes of text: what was asked and said in each turn, as objects while they are played, as arrays after.

Shapes: B episodes, T rounds, A agents, C channels.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch

from ludus.arena.protocol import CONTINUE, ProtocolHandler
from ludus.text.chat import ChatMessage
from ludus.text.nested.array_dict import NestedArrayDict
from ludus.text.rollouts.prompts import Heard


@dataclass(frozen=True)
class Turn:
    """One turn of one agent."""

    prompt: tuple[ChatMessage, ...]
    """The conversation it was asked to continue."""
    text: str
    """Its answer."""
    messages: Mapping[str, str]
    """What it said, by channel."""
    decision: int
    """REJECT, ACCEPT, or CONTINUE where it made none."""
    tokens: int = 0
    """The tokens of its answer, those of answers that were asked for again included."""
    prompt_tokens: int = 0
    retries: int = 0
    """How often it was asked again because its answer could not be read."""
    is_truncated: bool = False
    """Whether the answer was cut off by the limit of tokens."""
    is_malformed: bool = False
    """Whether the last answer could not be read either."""
    logprobs: tuple[float, ...] = ()
    """The log-probability of each token of the answer, where they were asked for."""
    token_ids: tuple[int, ...] = ()
    """The tokens themselves, where they were asked for."""


@dataclass
class TextEpisode:
    """An episode about one question, as far as it has been played."""

    index: int
    """The question's place in its dataset."""
    row: Mapping[str, str]
    """The columns of the question."""
    y: int
    seed: int
    """Chooses the variant of the protocol."""
    group: int = 0
    """The number of its question in all iterations: the same question may come twice."""
    path: tuple[int, ...] = ()
    """Which fork it is, for each round that was forked: the prefixes are the nodes of a tree."""
    rounds: list[dict[str, Turn]] = field(default_factory=list)
    """The turns of each round, by agent."""
    is_over: bool = False

    def forked(self, forks: int) -> list[TextEpisode]:
        """Return copies that can be played on by themselves; an episode that is over is one of its own."""
        if self.is_over:
            return [self]
        return [
            replace(self, path=(*self.path, number), rounds=[dict(one) for one in self.rounds])
            for number in range(forks)
        ]

    def heard_by(self, agent: str, handler: ProtocolHandler) -> list[list[Heard]]:
        """Return what an agent has read so far, its own messages included, by round."""
        visible = handler.agent_channel_visibility[agent]
        found = []
        for turns in self.rounds:
            said = [
                Heard(speaker, channel, turn.text if speaker == agent else text, speaker == agent)
                for speaker, turn in turns.items()
                for channel, text in turn.messages.items()
                if channel in visible
            ]
            order = handler.message_channel_names
            found.append(sorted(said, key=lambda one: order.index(one.channel)))
        return found


_KINDS = {
    "active": bool,
    "decision": np.int64,
    "tokens": np.int64,
    "prompt_tokens": np.int64,
    "retries": np.int64,
    "truncated": bool,
    "malformed": bool,
}


def to_arrays(
    episodes: Sequence[TextEpisode], handler: ProtocolHandler, *, with_tokens: bool = False
) -> NestedArrayDict:
    """Return episodes as arrays of (B, T), padded to all rounds, with the rewards of the protocol.

    `with_tokens` adds the tokens of each answer, padded with -1, and their log-probabilities.
    """
    names, channels = handler.agent_names, handler.message_channel_names
    shape = (len(episodes), handler.max_message_rounds)
    mask = np.zeros(shape, dtype=bool)
    whole = {name: np.zeros((*shape, len(names)), dtype=kind) for name, kind in _KINDS.items()}
    whole["decision"][:] = CONTINUE
    texts: list[str] = []
    prompts: list[str] = []
    messages: list[str] = []
    for b, episode in enumerate(episodes):
        for t in range(shape[1]):
            turns = episode.rounds[t] if t < len(episode.rounds) else {}
            mask[b, t] = t < len(episode.rounds)
            said: dict[str, str] = {}
            for a, name in enumerate(names):
                turn = turns.get(name)
                texts.append("" if turn is None else turn.text)
                prompts.append("" if turn is None else json.dumps(turn.prompt))
                if turn is None:
                    continue
                said |= turn.messages
                _note(whole, (b, t, a), turn)
            messages += [said.get(channel, "") for channel in channels]
    agents = {**whole, "text": _strings(texts, (*shape, len(names)))}
    agents["prompt"] = _strings(prompts, (*shape, len(names)))
    if with_tokens:
        agents |= _tokens(episodes, names, shape)
    once = {
        name: [getattr(one, name) for one in episodes] for name in ("index", "y", "seed", "group")
    }
    rows = {
        name: np.broadcast_to(np.array(values, dtype=np.int64)[:, None], shape).copy()
        for name, values in once.items()
    }
    found = NestedArrayDict(
        {
            **rows,
            "path": np.array([_padded(one.path, shape[1]) for one in episodes], dtype=np.int64),
            "round": np.broadcast_to(np.arange(shape[1]), shape).copy(),
            "mask": mask,
            "message": _strings(messages, (*shape, len(channels))),
            "agents": agents,
        },
        batch_size=shape,
    )
    reward_episodes(found, handler)
    return found


def reward_episodes(rollouts: NestedArrayDict, handler: ProtocolHandler) -> None:
    """Add the rewards, the verdicts and the ends of the protocol to rollouts."""
    shape = rollouts.batch_size
    decision_BTA = torch.from_numpy(np.ascontiguousarray(rollouts["agents", "decision"]))
    y_B = torch.from_numpy(np.ascontiguousarray(rollouts["y"][:, 0]))
    seed_B = torch.from_numpy(np.ascontiguousarray(rollouts["seed"][:, 0]))
    over_B = torch.zeros(shape[0], dtype=torch.bool)
    rewards = np.zeros((*shape, len(handler.agent_names)))
    verdicts = np.full(shape, CONTINUE, dtype=np.int64)
    ends = np.zeros(shape, dtype=bool)
    silent_BAC = torch.zeros(
        (shape[0], len(handler.agent_names), len(handler.message_channel_names)), dtype=torch.int64
    )
    for t in range(shape[1]):
        action_BAK = torch.cat([decision_BTA[:, t, :, None], silent_BAC], -1)
        outcome = handler.step(t, action_BAK, y_B, over_B, seed_B)
        rewards[:, t] = outcome.rewards.numpy()
        verdicts[:, t] = outcome.verdict.numpy()
        ends[:, t] = outcome.terminated.numpy()
        over_B = over_B | outcome.terminated
    rollouts["agents", "reward"] = rewards
    rollouts["verdict"] = verdicts
    rollouts["done"] = ends


def _note(whole: Mapping[str, np.ndarray], at: tuple[int, int, int], turn: Turn) -> None:
    whole["active"][at] = True
    whole["decision"][at] = turn.decision
    whole["tokens"][at] = turn.tokens
    whole["prompt_tokens"][at] = turn.prompt_tokens
    whole["retries"][at] = turn.retries
    whole["truncated"][at] = turn.is_truncated
    whole["malformed"][at] = turn.is_malformed


def _tokens(
    episodes: Sequence[TextEpisode], names: Sequence[str], shape: tuple[int, int]
) -> dict[str, np.ndarray]:
    """Return the tokens of each answer and their log-probabilities, (B, T, A, L)."""
    turns = [
        (b, t, names.index(name), turn)
        for b, episode in enumerate(episodes)
        for t, by_agent in enumerate(episode.rounds)
        for name, turn in by_agent.items()
    ]
    longest = max((len(turn.token_ids) for *_, turn in turns), default=0)
    ids = np.full((*shape, len(names), longest), -1, dtype=np.int64)
    logprobs = np.zeros(ids.shape)
    for b, t, a, turn in turns:
        ids[b, t, a, : len(turn.token_ids)] = turn.token_ids
        logprobs[b, t, a, : len(turn.logprobs)] = turn.logprobs
    return {"token_ids": ids, "logprobs": logprobs}


def _padded(path: Sequence[int], length: int) -> list[int]:
    return [*path, *[-1] * (length - len(path))]


def _strings(texts: Sequence[str], shape: tuple[int, ...]) -> np.ndarray:
    return np.array(texts, dtype=np.dtypes.StringDType()).reshape(shape)
