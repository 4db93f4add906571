"""MALT on models that are tables."""

from __future__ import annotations

import ludus
from tests.text.small_run import small_malt

REFUSALS = {"rollouts": "has no rollouts"}


def make() -> ludus.Trainer:
    return ludus.build_trainer(small_malt())
