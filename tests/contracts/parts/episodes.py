"""The episodes of training: those under way and the latest that ended."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ludus.rl.sampling.sampler import Episodes

# Returns have either sign.
HARMLESS = ("returns negative",)


def make() -> Episodes:
    return Episodes(2, window=3)


def use(episodes: Episodes) -> None:
    for number in range(7):
        ended = np.array([number % 2 == 1, number == 2])
        episodes.count(
            SimpleNamespace(
                rewards=np.array([0.1, number]),
                own_rewards=np.array([0.1, number]),
                terminated=ended,
                truncated=np.zeros(2, bool),
                has_ended=bool(ended.any()),
                successes=np.array([1.0, np.nan]),
            )
        )
