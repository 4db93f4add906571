"""A parallel env that counts, whose episodes can be worked out by hand, and small runs in it."""

from __future__ import annotations

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
from tests.arena.sections import parts
from tests.arena.small import QUIET, example

FAULTS = Literal["none", "forgets", "nan", "raises", "box", "dotted", "mask"]


class CountingParameters(StrictConfig):
    """How it counts."""

    kind: Literal["tests_counting"]
    """An env that counts its steps."""
    num_steps: int
    """It terminates after so many."""
    fault: FAULTS
    """What it does wrong."""


class CountingEnv(ParallelEnv):  # type: ignore[misc]
    """Shows `one` (seed, steps so far) and `two` the steps alone; each gains its action, `two` negated."""

    metadata = {"name": "counting_v0"}

    def __init__(self, num_steps: int, fault: str) -> None:
        self.num_steps, self.fault = num_steps, fault
        self.possible_agents = ["one.1" if fault == "dotted" else "one", "two"]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        box = Box(-1e9, 1e9, (1 if agent == "two" else 2,), np.float32)
        from gymnasium.spaces import Dict

        return Dict(action_mask=box) if self.fault == "mask" else box

    def action_space(self, agent: str) -> Any:
        if self.fault == "box":
            return Box(0.0, 1.0, (1,), np.float32)
        return Discrete(4) if agent == "two" else Discrete(2, start=5)

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.seed = self.seed if seed is None else seed
        self.count, self.agents = 0, list(self.possible_agents)
        return self._seen(), {name: {} for name in self.agents}

    def _seen(self) -> dict[str, Any]:
        count = np.nan if self.fault == "nan" and self.count else self.count
        seen = {"one": [self.seed % 1000, count], "two": [count]}
        return {name: np.array(row, np.float32) for name, row in seen.items()}

    def step(self, actions: dict[str, int]) -> Any:
        if self.fault == "raises":
            raise ValueError("no more")
        self.count += 1
        is_over = self.count >= self.num_steps
        gains = {"one": float(actions["one"]), "two": -float(actions["two"])}
        ends = dict.fromkeys(self.agents, is_over)
        if self.fault == "forgets":
            del gains["two"]
        cuts = dict.fromkeys(ends, False)
        return self._seen(), gains, ends, cuts, {name: {} for name in ends}


@ludus.register("parallel_env", "tests_counting")
class Counting(ParallelEnvMaker):
    Config = CountingParameters
    params: CountingParameters

    def make(self) -> Any:
        return CountingEnv(self.params.num_steps, self.params.fault)


def counting(num_steps: int = 3, fault: str = "none") -> dict[str, Any]:
    """Return the section of the counting env."""
    return {"kind": "tests_counting", "num_steps": num_steps, "fault": fault}


def environment(
    *, num_envs: int = 2, num_steps: int | None = 4, limit: int = 100, seed: int = 0, **env: Any
) -> ParallelEnvironment:
    """Return counting envs to play in."""
    section = validate(CountingParameters, counting(**env), source="the test")
    return ParallelEnvironment(
        maker_of(section).make,
        spec_of(section),
        num_envs=num_envs,
        num_steps=num_steps,
        max_episode_steps=limit,
        seed=seed,
        name="train",
        device=torch.device("cpu"),
    )


VECTOR = {"kind": "vector", "widths": [8], "activation": "tanh", "normalise_observations": True}
SMALL: dict[str, Any] = {
    "max_iterations": 3,
    "rl.rollouts_per_iteration": 2,
    "rl.steps_per_env_per_iteration": 8,
    "rl.num_epochs": 2,
    "rl.minibatch_size": 8,
    "rl.num_test_iterations": 1,
    "optimizer.learning_rate": 0.01,
    "engine": "tape",
    "log_every_iterations": 1,
    "keep_every_iterations": 2,
    "evaluate_every_iterations": 2,
    "evaluation.episodes": 2,
}


def small_env(**changed: Any) -> Any:
    """Return the config of a short run in the coordination env; sections are changed by path."""
    agents = {"row": parts(VECTOR), "column": parts(VECTOR)}
    keys = {**QUIET, **SMALL, "agents": agents, "scenario.env.num_steps": 6, **changed}
    return example("vanilla_ppo-pettingzoo").replace(**keys)


def small_counting(env: dict[str, Any] | None = None, limit: int = 100, **changed: Any) -> Any:
    """Return the config of a short run in the counting env."""
    scenario = {"kind": "pettingzoo", "env": env or counting(), "max_episode_steps": limit}
    agents = {"one": parts(VECTOR), "two": parts(VECTOR)}
    return small_env().replace(**{"scenario": scenario, "agents": agents, **changed})


def prepared(config: Any) -> Any:
    """Return a trainer that is built but does not run."""
    trainer: Any = ludus.build_trainer(config)
    trainer.set_logger(ludus.Logger({"backends": []}))
    trainer.prepare(max_steps=None)
    return trainer
