"""Expert iteration on models that are tables."""

from __future__ import annotations

import ludus
from tests.text.small_run import small_ei

REFUSALS = {"rollouts": "has no rollouts"}


def make() -> ludus.Trainer:
    # The best test is not the last one.
    return ludus.build_trainer(small_ei(seed=2, **{"text_rl.test_temperature": None}))
