"""An env that waits, so that a step of it takes long. Processes beside the tests load it as a plugin."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np

from ludus.config.registry import register
from ludus.config.sections import StrictConfig


@register("env", "tests_waiting")
class Waiting(gymnasium.Env):
    """Episodes of five steps; one step of its life waits for a file. A reward is 1 if it is there."""

    class Config(StrictConfig):
        kind: Literal["tests_waiting"]
        """This env."""
        file: str
        """The file to wait for."""
        seconds: float
        """How long to wait for it at most."""
        token: str
        """A file that whoever waits takes away first; without it nobody waits. Empty: no need of one."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2)
        self._deadline: float | None = None

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self._time = 0
        return self._seen(), {}

    def step(self, action: int) -> Any:
        self._time += 1
        # With a token any step may be the one.
        if (self._deadline is None or self.config.token) and self._may_wait():
            self._deadline = time.monotonic() + self.config.seconds
        file = Path(self.config.file)
        while not file.exists() and time.monotonic() < (self._deadline or 0):
            time.sleep(0.01)
        return self._seen(), float(file.exists()), self._time == 5, False, {}

    def _may_wait(self) -> bool:
        token = Path(self.config.token)
        is_there = not self.config.token or token.exists()
        if self.config.token:
            token.unlink(missing_ok=True)
        return is_there

    def _seen(self) -> Any:
        return np.array([self._time / 5, 0.5], np.float32)


def waiting(file: Path, seconds: float = 0.0, token: Path | None = None) -> dict[str, Any]:
    """Return the section of such an env."""
    told = "" if token is None else str(token)
    return {"kind": "tests_waiting", "file": str(file), "seconds": seconds, "token": told}
