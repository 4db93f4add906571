"""A parallel env whose agents leave one after another, in the manners that envs have, right and wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

import ludus
from ludus.arena.playing.parallel_env import ParallelEnvMaker
from ludus.arena.scenarios.pettingzoo.environment import ParallelEnvironment
from ludus.arena.scenarios.pettingzoo.spec import maker_of, spec_of
from ludus.config.sections import StrictConfig, validate
from tests.arena.pettingzoo.made import VECTOR, small_env
from tests.arena.sections import parts

NAMES = ("one", "two", "three")
MANNER = Literal[
    # As PettingZoo has it: who is done is in the dicts of that step, and then nowhere.
    "drops",
    # What is accepted beside it.
    "keeps telling", "keeps listed", "keeps both", "hides the end", "empties",
    # What is refused.
    "comes back", "goes on", "vanishes", "stranger", "late", "no reward", "no observation",
]  # fmt: skip


class LeavingParameters(StrictConfig):
    """Who leaves when, and how."""

    kind: Literal["tests_leaving"]
    """An env whose agents leave."""
    last_steps: list[int]
    """The last step of each agent."""
    truncated: list[str]
    """Who is truncated then; the others terminate."""
    manner: MANNER
    """How the env tells of those that leave."""
    is_drawn: bool
    """Whether the last steps are drawn, up to these, by the seed of an episode."""


class LeavingEnv(ParallelEnv):  # type: ignore[misc]
    """Shows each agent (10 times its place, the steps so far), and gives it 1, 2, 3, ... step by step."""

    metadata = {"name": "leaving_v0"}

    def __init__(self, params: LeavingParameters) -> None:
        self.params = params
        self.possible_agents = list(NAMES)
        self.agents: list[str] = []
        self.given: list[dict[str, int]] = []
        self.num_closed = 0
        self.box, self.moves = Box(-1e9, 1e9, (2,), np.float32), Discrete(3)

    def observation_space(self, agent: str) -> Any:
        return self.box

    def action_space(self, agent: str) -> Any:
        return self.moves

    def close(self) -> None:
        self.num_closed += 1

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        lasts = np.array(self.params.last_steps)
        if self.params.is_drawn:
            lasts = np.random.default_rng(seed).integers(1, lasts + 1)
        self.lasts = dict(zip(NAMES, lasts.tolist(), strict=True))
        self.count, self.agents = 0, list(NAMES)
        if self.params.manner == "late":
            self.agents.remove("two")
        return self.seen(NAMES), {name: {} for name in NAMES}

    def seen(self, names: Sequence[str]) -> dict[str, Any]:
        return {name: np.array([10 * NAMES.index(name), self.count], np.float32) for name in names}

    def step(self, actions: dict[str, int]) -> Any:
        manner = self.params.manner
        self.given.append(actions)
        there = [name for name in NAMES if self.lasts[name] > self.count]
        self.count += 1
        done = [name for name in NAMES if self.lasts[name] <= self.count]
        told = list(NAMES) if manner in ("keeps telling", "keeps both", "goes on") else there
        gains = {name: float(self.count) if name in there else 99.0 for name in told}
        ends = {name: name in done and name not in self.params.truncated for name in told}
        cuts = {name: name in done and name in self.params.truncated for name in told}
        seen = self.seen(told)
        if manner not in ("keeps listed", "keeps both", "goes on") or len(done) == len(NAMES):
            self.agents = [name for name in NAMES if name not in done]
        self.err(manner, there, done, seen, gains, ends, cuts)
        return seen, gains, ends, cuts, {name: {} for name in told}

    def err(self, manner: str, there: list[str], done: list[str], *told: dict[str, Any]) -> None:
        """Change what is told of this step, in the manners that are not PettingZoo's."""
        seen, gains, ends, cuts = told
        leaving = [name for name in there if name in done]
        for name in leaving:
            if manner in ("hides the end", "no observation"):
                del seen[name]
            if manner == "no reward":
                del gains[name]
            if manner == "vanishes" or (manner == "empties" and not self.agents):
                ends[name] = cuts[name] = False
        if manner == "comes back" and done and not leaving:
            self.agents = list(NAMES)
        if manner == "goes on":
            ends.update({name: False for name in done if name not in leaving})
        if manner == "stranger" and done:
            self.agents = [*self.agents, "four"]


@ludus.register("parallel_env", "tests_leaving")
class Leaving(ParallelEnvMaker):
    Config = LeavingParameters
    params: LeavingParameters

    def make(self) -> Any:
        return LeavingEnv(self.params)


def leaving(
    last_steps: tuple[int, int, int] = (4, 2, 3),
    truncated: Sequence[str] = (),
    manner: str = "drops",
    is_drawn: bool = False,
) -> dict[str, Any]:
    """Return the section of the env."""
    return {
        "kind": "tests_leaving",
        "last_steps": list(last_steps),
        "truncated": list(truncated),
        "manner": manner,
        "is_drawn": is_drawn,
    }


def leaving_environment(
    *, num_envs: int = 1, num_steps: int | None = 20, limit: int = 100, **env: Any
) -> ParallelEnvironment:
    """Return envs to play in."""
    section = validate(LeavingParameters, leaving(**env), source="the test")
    return ParallelEnvironment(
        maker_of(section).make,
        spec_of(section),
        num_envs=num_envs,
        num_steps=num_steps,
        max_episode_steps=limit,
        seed=0,
        name="train",
        device=torch.device("cpu"),
    )


def small_leaving(env: dict[str, Any] | None = None, limit: int = 100, **changed: Any) -> Any:
    """Return the config of a short run in the env."""
    scenario = {"kind": "pettingzoo", "env": env or leaving(), "max_episode_steps": limit}
    agents = dict.fromkeys(NAMES, parts(VECTOR))
    return small_env().replace(**{"scenario": scenario, "agents": agents, **changed})
