"""Tuning of the PPO kernels by the size of a minibatch."""

from __future__ import annotations

from typing import NamedTuple

from ludus.games.kernels.ppo.iteration import PpoNumbers


class Tuning(NamedTuple):
    """The division of work among programs; it changes the speed, and the order of sums."""

    rows: int
    """Rows of a block of the gradient kernel."""
    warps: int
    """Warps of a program of the gradient kernel."""
    programs: int = 128
    """The maximum number of programs of the gradient kernel for each network."""
    pieces: int = 32
    """Parameters of a program of the reduce and Adam kernels."""
    games: int = 16
    """Games of a program of the rollout."""
    rollout_warps: int = 1
    rollout_outputs: int = 16
    """The padded width of the outputs there: with 32 the warps divide the widths of the network."""
    overlaps: bool = False
    """Whether a kernel is launched while the one before it runs: faster only for short ones."""


def tuning_for(numbers: PpoNumbers) -> Tuning:
    """Return the fastest tuning on an H200 for minibatches of about this size."""
    size = numbers.num_rows // numbers.num_minibatches
    if size < 2048:
        return Tuning(rows=16, warps=4, overlaps=True)
    return Tuning(rows=128, warps=8) if size <= 8192 else Tuning(rows=64, warps=4)
