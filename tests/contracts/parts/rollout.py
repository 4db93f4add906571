"""The rollout buffer: its steps, its rows and where its epoch stands."""

from __future__ import annotations

import numpy as np

from ludus.data.replay.rollout import RolloutBuffer
from ludus.data.replay.row_layout import RowLayout

# Numbers of either sign; estimates may have diverged; any state of a generator.
HARMLESS = ("steps/* negative", "rows NaN", "rows negative", "generator/state/state far too large")


def make() -> RolloutBuffer:
    return RolloutBuffer(4, 2, RowLayout((3,), np.float32, 1), seed=5)


def use(buffer: RolloutBuffer) -> None:
    buffer.clear()
    for number in range(4):
        obs = np.full((2, 3), number)
        buffer.add(obs, obs[:, :1], obs[:, 0], obs[:, 0] > 2, obs[:, 0] > 3, obs + 1)
    buffer.pack(buffer.obs.flatten(0, 1))
    buffer.shuffle()
    buffer.next(3)
