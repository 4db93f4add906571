"""Prioritised replay: its transitions, priorities and generator."""

from __future__ import annotations

import numpy as np

from ludus.data.replay.prioritised import PerConfig, PrioritisedReplay
from ludus.data.replay.row_layout import RowLayout

CONFIG = PerConfig(alpha=0.6, beta=0.4, eps=1e-6, normalise="batch")

# Numbers of either sign, in any state of a generator.
HARMLESS = ("transitions/*/rows negative", "generator/state/state far too large")


def make() -> PrioritisedReplay:
    return PrioritisedReplay(RowLayout((3,), np.float32, 1), 10, CONFIG, seed=5)


def use(buffer: PrioritisedReplay) -> None:
    for _ in range(3):
        obs = np.full((4, 3), buffer.total)
        buffer.push(obs, obs[:, :1], np.arange(4.0), np.ones(4), obs + 1)
        batch = buffer.sample(2)
        buffer.update_priorities(batch.indices, np.arange(2.0) + buffer.total)
    buffer.push(obs, obs[:, :1], np.arange(4.0), np.ones(4), obs + 1)
