"""The n-step processor: the steps that wait for their returns."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np

from ludus.data.replay.ring import ReplayBuffer
from ludus.data.replay.row_layout import RowLayout
from ludus.rl.sampling.step_processor import NStep

LAYOUT = RowLayout((2,), np.float32, 1)

# Numbers of either sign.
HARMLESS = ("obs negative", "first_obs negative", "actions negative", "returns negative")


def make() -> NStep:
    return NStep(2, LAYOUT, 0.9, 3)


def use(processor: NStep) -> None:
    buffer = ReplayBuffer(LAYOUT, 100, seed=0)
    for number in range(5):
        obs = np.full((2, 2), number, dtype=np.float32)
        ends = np.array([number == 3, False])
        env = SimpleNamespace(
            obs=obs + 1,
            next_obs=obs + 1,
            rewards=np.array([1.0, number]),
            terminated=ends,
            truncated=ends & False,
            has_ended=bool(ends.any()),
            next_masks=None,
        )
        processor.process(np.full((2, 1), number), env, buffer)
