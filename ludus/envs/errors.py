"""The error for an env that breaks its contract."""

from __future__ import annotations

from ludus.core.errors import LudusError


class EnvError(LudusError):
    """An env broke its contract; the message says which env, when, and in what."""

    def __init__(
        self, problem: str, *, env: str, index: int, episode: int, step: int, field: str
    ) -> None:
        super().__init__(f"{env}, env {index}, episode {episode}, step {step}: {problem}")
        self.problem, self.env, self.field = problem, env, field
        self.index, self.episode, self.step = index, episode, step
