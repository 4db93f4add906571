"""A small env with masks and successes that can be told to make trouble, and a policy for it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import torch

from ludus.config.registry import register
from ludus.config.sections import StrictConfig


@register("env", "tests_walk")
class Walk(gymnasium.Env):
    """A walk on a line of random length; going left is forbidden at its left end."""

    class Config(StrictConfig):
        kind: Literal["tests_walk"]
        """This env."""
        trouble: Literal["none", "abort", "exit", "hang", "raise", "print", "kill"]
        """What goes wrong."""
        at: int
        """At which step of an episode."""
        once: str
        """A file that is made first; while it is there nothing goes wrong. Empty for always."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 20}
    render_mode = "rgb_array"

    def __init__(self, config: Config) -> None:
        self.config = config
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.time, self.length = 0, int(self.np_random.integers(3, 30))
        self.place = float(self.np_random.normal())
        return self._seen(), self._info()

    def step(self, action: int) -> Any:
        self.time += 1
        if self.time == self.config.at:
            self._make_trouble()
        self.place += 0.3 * (action - 1) + 0.1 * float(self.np_random.normal())
        is_over, is_late = self.time >= self.length, self.time >= 25
        return self._seen(), -abs(self.place), is_over, is_late and not is_over, self._info()

    def render(self) -> Any:
        return np.full((4, 6, 3), self.time, np.uint8)

    def _seen(self) -> Any:
        return np.array([self.place, self.time / 30], np.float32)

    def _info(self) -> dict[str, Any]:
        return {
            "is_success": self.place > 0,
            "action_mask": np.array([self.place > -1, 1, 1], bool),
        }

    def _make_trouble(self) -> None:
        if self.config.once:
            flag = Path(self.config.once)
            if flag.exists():
                return
            flag.touch()
        match self.config.trouble:
            case "abort":
                os.abort()
            case "exit":
                os._exit(5)
            case "hang":
                time.sleep(1000)
            case "raise":
                raise ValueError("no more")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "print":
                for _ in range(50):
                    os.write(1, b"x" * (1 << 20))


def walk(trouble: str = "none", at: int = -1, once: str = "") -> Walk.Config:
    return Walk.Config(kind="tests_walk", trouble=trouble, at=at, once=once)


class LinearPolicy:
    """Takes the action with the highest score, a linear function of the observation."""

    def __init__(self) -> None:
        self.weights = torch.zeros(2, 3)
        self.is_training = True
        self.was_training_when_asked: set[bool] = set()

    def load_weights(self, weights: Any) -> None:
        self.weights.copy_(weights["linear"])

    def act_greedy(self, obs_ND: Any, masks_NA: Any) -> Any:
        self.was_training_when_asked.add(self.is_training)
        scores = obs_ND @ self.weights.numpy()
        return np.where(masks_NA, scores, -np.inf).argmax(1)

    def train(self, mode: bool = True) -> None:
        self.is_training = mode

    def eval(self) -> None:
        self.train(False)


def linear_weights(seed: int = 0) -> dict[str, torch.Tensor]:
    return {"linear": torch.randn(2, 3, generator=torch.Generator().manual_seed(seed))}


def linear_policy(seed: int = 0) -> LinearPolicy:
    policy = LinearPolicy()
    policy.load_weights(linear_weights(seed))
    return policy
