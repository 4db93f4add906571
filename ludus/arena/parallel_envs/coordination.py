"""The parallel env `coordination`: two agents are rewarded for choosing the requested option.

Each observes one half of the request, so neither knows it alone; but each also observes the other's last
choice, and a request lasts a few steps.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from gymnasium.spaces import Box, Discrete

from ludus.arena.parallel_library import ParallelEnv
from ludus.arena.playing.parallel_env import ParallelEnvMaker
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register

_NAMES = ("row", "column")
_NUM_OPTIONS = 4


class CoordinationParameters(StrictConfig):
    """The length of an episode and of a request."""

    kind: Literal["coordination"]
    """Two agents are rewarded for choosing the requested option."""
    num_steps: Positive
    """The number of steps of an episode; the last one terminates it."""
    request_lasts: Positive
    """The number of steps for which the same option is requested."""


class CoordinationEnv(ParallelEnv[str, np.ndarray, int]):
    """Requests one of four options: `row` observes its first bit, `column` its second, both the last
    choices."""

    metadata = {"name": "coordination_v0", "render_modes": []}

    def __init__(self, num_steps: int, request_lasts: int) -> None:
        self.num_steps, self.request_lasts = num_steps, request_lasts
        self.possible_agents = list(_NAMES)
        self.agents: list[str] = []
        # PettingZoo requires the same object every time.
        numbers = Box(0.0, 1.0, (1 + 2 * _NUM_OPTIONS,), np.float32)
        self._observation_spaces = dict.fromkeys(_NAMES, numbers)
        self._action_spaces = {name: Discrete(_NUM_OPTIONS) for name in _NAMES}
        self.rng = np.random.default_rng(0)

    def observation_space(self, agent: str) -> Box:
        """Return the space of its bit of the request, and the last choices one-hot."""
        return self._observation_spaces[agent]

    def action_space(self, agent: str) -> Discrete:
        """Return the options."""
        return self._action_spaces[agent]

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, dict[str, Any]]]:
        """Begin an episode."""
        if seed is not None:
            self.rng = np.random.default_rng(seed)
        self.agents = list(self.possible_agents)
        self.step_index = 0
        self.chosen: dict[str, int] = {}
        self._ask()
        return self._seen(), {name: {} for name in self.agents}

    def step(self, actions: dict[str, int]) -> tuple[dict[str, Any], ...]:
        """Reward both agents by half a point for each that chose the requested option."""
        gain = 0.5 * sum(int(actions[name]) == self.asked for name in _NAMES)
        self.chosen = {name: int(actions[name]) for name in _NAMES}
        self.step_index += 1
        if self.step_index % self.request_lasts == 0:
            self._ask()
        names, is_over = list(self.agents), self.step_index >= self.num_steps
        seen = self._seen()
        self.agents = [] if is_over else names
        infos: dict[str, Any] = {name: {} for name in names}
        ends, cuts = dict.fromkeys(names, is_over), dict.fromkeys(names, False)
        return seen, dict.fromkeys(names, gain), ends, cuts, infos

    def _ask(self) -> None:
        self.asked = int(self.rng.integers(_NUM_OPTIONS))
        self.chosen = {}

    def _seen(self) -> dict[str, np.ndarray]:
        chosen = np.zeros((2, _NUM_OPTIONS), np.float32)
        for index, name in enumerate(_NAMES):
            if name in self.chosen:
                chosen[index, self.chosen[name]] = 1.0
        bits = self.asked // 2, self.asked % 2
        return {
            name: np.concatenate([[bits[index]], chosen.reshape(-1)]).astype(np.float32)
            for index, name in enumerate(_NAMES)
        }


@register("parallel_env", "coordination")
class Coordination(ParallelEnvMaker):
    """Makes ludus's own env."""

    Config = CoordinationParameters
    params: CoordinationParameters

    def make(self) -> CoordinationEnv:
        """Return a new env."""
        return CoordinationEnv(self.params.num_steps, self.params.request_lasts)
