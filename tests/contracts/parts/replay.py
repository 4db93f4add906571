"""The replay buffer: its transitions and its generator."""

from __future__ import annotations

import numpy as np

from ludus.data.replay.ring import ReplayBuffer
from ludus.data.replay.row_layout import RowLayout

# Numbers of either sign, in any state of a generator.
HARMLESS = ("transitions/*/rows negative", "generator/state/state far too large")


def make() -> ReplayBuffer:
    return ReplayBuffer(RowLayout((3,), np.float32, 1), 10, seed=5)


def use(buffer: ReplayBuffer) -> None:
    for _ in range(3):
        obs = np.full((4, 3), buffer.total)
        buffer.push(obs, obs[:, :1], np.arange(4.0), np.ones(4), obs + 1)
    buffer.sample(2)
