"""Random walks with one peculiarity each, and the configs that name them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.envs.config import WrapperSection
from ludus.envs.kinds.gymnasium import RegisteredEnv


def gym_config(name: str, wrappers: Any = (), **changes: Any) -> RegisteredEnv.Config:
    """Return the section of an env of gymnasium."""
    whole = {"kind": "gymnasium", "id": name, "kwargs": {}, "max_episode_steps": None}
    return RegisteredEnv.Config.model_validate(whole | {"wrappers": list(wrappers)} | changes)


class RandomWalkConfig(StrictConfig):
    """A random walk."""

    kind: Literal["random_walk", "cheat", "walk_with_state", "odd", "old_hand"]
    """Which walk."""
    length: int
    """How many steps an episode has."""
    wrappers: list[WrapperSection]
    """What stands around it."""


def walk_config(kind: str = "random_walk", length: int = 20, wrappers: Any = ()) -> Any:
    """Return the section of one of the walks."""
    whole = {"kind": kind, "length": length, "wrappers": list(wrappers)}
    return RandomWalkConfig.model_validate(whole)


@register("env", "random_walk")
class RandomWalk(gymnasium.Env):
    """Noise from the env's own generator is added to where the actions lead."""

    Config = RandomWalkConfig
    observation_space = spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = spaces.Discrete(3, start=-1)

    def __init__(self, config: RandomWalkConfig) -> None:
        self.length = config.length
        self.place = np.zeros(3)
        self.num_steps = 0
        self.seeds: list[int | None] = []

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.seeds.append(seed)
        self.place = self.np_random.normal(size=3)
        self.num_steps = 0
        return self.place.astype(np.float32), {}

    def step(self, action: Any) -> Any:
        self.num_steps += 1
        self.place = self.place * 0.9 + action + self.np_random.normal(size=3)
        is_over = self.num_steps >= self.length
        info = {"is_success": bool(self.place[0] > 0)} if is_over else {}
        return self.place.astype(np.float32), float(self.place[0]), is_over, False, info


@register("env", "cheat")
class Cheat(RandomWalk):
    """What it shows depends on how many steps were ever made in this process."""

    steps_ever: ClassVar[list[int]] = [0]

    def step(self, action: Any) -> Any:
        self.steps_ever[0] += 1
        self.place = self.place + self.steps_ever[0]
        return super().step(action)


@register("env", "walk_with_state")
class WalkWithState(Cheat):
    """It cannot be played again, but hands out its whole state."""

    def get_state(self) -> Any:
        return {
            "place": self.place.copy(),
            "num_steps": self.num_steps,
            "random": self.np_random.bit_generator.state,
            "steps_ever": self.steps_ever[0],
        }

    def set_state(self, state: Any) -> None:
        self.place = state["place"].copy()
        self.num_steps = state["num_steps"]
        self.np_random.bit_generator.state = state["random"]
        self.steps_ever[0] = state["steps_ever"]


@register("env", "odd")
class Odd(RandomWalk):
    """At its third step it returns, or does, what it is told to."""

    derived = ("fault",)
    fault: ClassVar[dict[str, Any]] = {}
    at_reset: ClassVar[Any] = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        result = super().reset(seed=seed)
        if len(self.seeds) > 2 and self.at_reset is not None:
            return self.at_reset()
        return result

    def step(self, action: Any) -> Any:
        names = ("obs", "reward", "terminated", "truncated", "info")
        whole = dict(zip(names, super().step(action), strict=True))
        if self.num_steps == 3:
            if "do" in self.fault:
                return self.fault["do"](tuple(whole.values()))
            whole |= self.fault
        return tuple(whole.values())


@register("env", "old_hand")
class OldHand(RandomWalk):
    """What it was asked to keep it keeps over its whole life; a reset does not touch it."""

    keeps: ClassVar[str] = "generator"

    def __init__(self, config: RandomWalkConfig) -> None:
        super().__init__(config)
        self.own = np.random.default_rng(7)
        self.num_episodes = 0
        self.num_ended = 0
        self.lifetime = 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        self.num_episodes += 1
        return super().reset(seed=seed)

    def step(self, action: Any) -> Any:
        obs, reward, is_over, _, info = super().step(action)
        self.lifetime += 1
        if self.keeps == "generator":
            reward += self.own.normal()
        if self.keeps == "episodes":
            obs = obs + np.float32(self.num_episodes)
        if self.keeps == "age" and self.num_ended >= 2:
            obs = obs + np.float32(1)
        self.num_ended += is_over
        if self.keeps == "bonus at the end" and is_over:
            reward += self.num_episodes
        is_late = self.keeps == "truncation" and self.lifetime % 33 == 0
        return obs, reward, is_over, is_late, info
