"""Whole rounds of PPO by Triton kernels, on the games and the learner of a trainer."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from ludus.games.elementwise import ElementwiseGame
from ludus.games.kernels.ppo.iteration import Live, PpoNumbers
from ludus.games.kernels.ppo.layout import why_no_kernels
from ludus.games.ppo.config import FusedPpoConfig
from ludus.games.ppo.learn import PpoUpdate
from ludus.games.ppo.live import LiveGames

BY_KERNELS = "by Triton kernels (float16 factors, float32 sums)"


def numbers_of(config: FusedPpoConfig) -> PpoNumbers:
    """Return the hyperparameters of an iteration from a config."""
    return PpoNumbers(**{name: getattr(config, name) for name in PpoNumbers.__annotations__})


class KernelRounds:
    """Makes rounds by kernels, which hold the games in their own memory meanwhile."""

    def __init__(self, config: FusedPpoConfig, live: LiveGames, ppo: PpoUpdate) -> None:
        # Triton is imported only where it is used.
        from ludus.games.kernels.ppo.engine import PpoKernels

        assert isinstance(live.game, ElementwiseGame)
        self._live, self._ppo, self._clip = live, ppo, config.clip
        own = {name: value.clone() for name, value in live.state.items()}
        iteration = torch.zeros((), dtype=torch.int64, device=live.device)
        self._own = Live(own, live.returns_BR[:, 0].clone(), iteration)
        self._numbers = numbers_of(config)
        self._kernels = PpoKernels(live.game, ppo.learner, self._own, live.keys, self._numbers)

    def make_ready(self) -> str | None:
        """Compile the kernels and capture a round, so that no round has to wait for it.

        Returns a reason where Triton cannot compile the functions of the game.
        """
        from triton.compiler.errors import CompilationError

        try:
            self._kernels.make_ready()
        except CompilationError as error:
            kind = type(self._live.game).__name__
            return f"Triton cannot compile the functions of {kind}: {_first(error)}"
        return None

    def make(self, first: int, count: int, learning_rate: Callable[[int], float]) -> None:
        """Make rounds from number `first` on; the rate is a function of the update, the first being 0."""
        live, ppo, own = self._live, self._ppo, self._own
        for name, value in own.state.items():
            value.copy_(live.state[name])
        own.returns.copy_(live.returns_BR[:, 0])
        own.iteration.fill_(first)
        self._kernels.iterate(count, learning_rate=learning_rate, clip=lambda _: self._clip)
        live.state = {name: value.clone() for name, value in own.state.items()}
        live.returns_BR = own.returns.unsqueeze(1).clone()
        live.lengths_B = own.state["steps"].float()
        totals = self._kernels.take_totals()
        episodes = torch.stack([totals.num_episodes, totals.sum_lengths, totals.sum_returns])
        live.totals = live.totals + episodes
        ppo.totals.add_(totals.metrics)
        ppo.num_counted += count * self._numbers.num_updates


def _first(error: BaseException) -> str:
    """Return the last line of the root cause: an error in an inlined function is re-raised by callers."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def overridden(trainer: object, base: type) -> list[str]:
    """Return the methods of a round that a script overrides: the kernels would not call them."""
    return [
        name
        for name in ("collect_rollout", "outputs", "train_step")
        if getattr(type(trainer), name) is not getattr(base, name) or name in vars(trainer)
    ]


def choose_kernels(
    config: FusedPpoConfig, live: LiveGames, ppo: PpoUpdate, *, own: Sequence[str]
) -> tuple[KernelRounds | None, str]:
    """Return the kernels for the rounds of a fused run, or None, and how rounds are made.

    `own` are the methods of a round that a script overrides.
    """
    reason = why_no_kernels(live.game, ppo.learner, numbers_of(config))
    if own:
        reason = f"{own[0]} is overridden"
    if reason is None:
        return KernelRounds(config, live, ppo), BY_KERNELS
    return None, plainly(reason)


def plainly(reason: str) -> str:
    """Return the message that rounds are made without kernels, and why."""
    return f"in plain PyTorch: {reason}"
