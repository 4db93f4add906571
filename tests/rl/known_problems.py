"""Envs of a few steps whose best actions and values can be written down, and configs to learn them."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium
import numpy as np
from gymnasium import spaces

from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from tests.rl.small import small

REWARDS_CA = np.array([[0.2, -0.5, 1.0], [0.6, 0.1, -1.0]])
"""What each action of the first step brings in each of two contexts."""
PAIRS_C = [(2, 10), (1, 12)]
"""The right pair of choices in each context."""
PEAK = np.array([1.5, -0.5])
"""The best continuous action."""
GAMMA = 0.9


class ProblemConfig(StrictConfig):
    """One of the problems."""

    kind: Literal["tests_choice", "tests_pair", "tests_peak", "tests_images"]
    """Which."""
    length: int
    """How many steps an episode has; only the first action matters, and only the end is rewarded."""
    has_masks: bool
    """Whether the best action is forbidden."""


class Problem(gymnasium.Env):
    """Shows a context, then how much the end will bring and how near it is."""

    Config = ProblemConfig
    observation_space = spaces.Box(-2.0, 2.0, (4,), np.float32)

    def __init__(self, config: ProblemConfig) -> None:
        self.config = config

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.context, self.time, self.prize = int(self.np_random.integers(2)), 0, 0.0
        return self._seen(), self._info()

    def step(self, action: Any) -> Any:
        if self.time == 0:
            assert self.action_space.contains(action), f"{action} is no action of this env"
            if self.config.has_masks:
                assert self._is_allowed(action), f"{action} is forbidden"
            self.prize = self._worth(action)
        self.time += 1
        is_over = self.time == self.config.length
        return self._seen(), self.prize if is_over else 0.0, is_over, False, self._info()

    def _worth(self, action: Any) -> float:
        raise NotImplementedError

    def _mask(self) -> np.ndarray:
        raise NotImplementedError

    def _is_allowed(self, action: Any) -> bool:
        raise NotImplementedError

    def _seen(self) -> np.ndarray:
        return observation(self.context, self.time, self.prize)

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._mask()} if self.config.has_masks else {}


def observation(context: int, time: int = 0, prize: float = 0.0) -> np.ndarray:
    first = [float(context == 0), float(context == 1)] if time == 0 else [0.0, 0.0]
    return np.array([*first, prize, float(time)], np.float32)


@register("env", "tests_choice")
class Choice(Problem):
    """One of three actions, numbered from 5."""

    action_space = spaces.Discrete(3, start=5)

    def _worth(self, action: Any) -> float:
        return float(REWARDS_CA[self.context, int(action) - 5])

    def _mask(self) -> np.ndarray:
        return np.arange(3) != REWARDS_CA[self.context].argmax()

    def _is_allowed(self, action: Any) -> bool:
        return bool(self._mask()[int(action) - 5])


@register("env", "tests_pair")
class Pair(Problem):
    """Two choices at once, numbered from 1 and from 10."""

    action_space = spaces.MultiDiscrete([2, 3], start=[1, 10])

    def _worth(self, action: Any) -> float:
        return float(sum(a == b for a, b in zip(action, PAIRS_C[self.context], strict=True)))

    def _mask(self) -> np.ndarray:
        mask = np.ones(5, bool)
        mask[2 + PAIRS_C[self.context][1] - 10] = False
        return mask

    def _is_allowed(self, action: Any) -> bool:
        return bool(self._mask()[2 + int(action[1]) - 10])


@register("env", "tests_peak")
class Peak(Problem):
    """Two numbers, each with a best value inside its bounds."""

    action_space = spaces.Box(np.float32([-2, -1]), np.float32([4, 1]))

    def _worth(self, action: Any) -> float:
        return -float(np.square((action - PEAK) / [6, 2]).sum())


@register("env", "tests_images")
class Images(Peak):
    """Numbers chosen on sight of an image."""

    observation_space = spaces.Box(0, 255, (8, 8, 1), np.uint8)

    def _seen(self) -> np.ndarray:
        return np.full((8, 8, 1), self.context, np.uint8)


def problem(kind: str, length: int = 1, *, has_masks: bool = False) -> ProblemConfig:
    return ProblemConfig(kind=kind, length=length, has_masks=has_masks)


STEADY = {"kind": "constant", "warmup_steps": 0}


def learning(kind: str, env: ProblemConfig, **changes: Any) -> Any:
    """Return the config of a run of about a second that learns this problem."""
    common = {
        "env": env,
        "gamma": GAMMA,
        "network.widths": [32],
        "optimizer.learning_rate": 0.01,
        "learning_rate_schedule": STEADY,
        "engine": "tape",
    }
    if kind == "ppo":
        own: dict[str, Any] = {
            "num_envs": 8,
            "rollout_steps": 16,
            "num_epochs": 4,
            "minibatch_size": 32,
            "max_env_steps": 128 * 20,
            "log_every_epochs": 0,
            "evaluate_every_epochs": 0,
            "keep_every_epochs": 0,
        }
    else:
        own = {
            "num_envs": 4,
            "batch_size": 32,
            "learning_starts": 64,
            "replay.capacity": 1000,
            "target.sync_every_opt_steps": 5,
            "target.tau": 0.5,
            "steps.update_every_env_steps": 4,
            "steps.log_every_opt_steps": 0,
            "steps.evaluate_every_opt_steps": 0,
            "steps.keep_every_opt_steps": 0,
            "steps.max_opt_steps": 500,
        }
        if kind != "sac":
            own |= {"exploration.initial": 1.0, "exploration.schedule": STEADY}
    plain = small(kind, **{k: v for k, v in (common | own).items() if k != "env"})
    return plain.replace(env=env, **changes)
