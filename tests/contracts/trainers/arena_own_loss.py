"""A trainer of a script's own in the arena: a loss with a parameter and a buffer, and no estimator."""

from __future__ import annotations

import ludus
from tests.arena.small import small_arena
from tests.arena.test_base_classes import OwnLoss

REFUSALS = {"waiting": "the rollouts of this iteration are not there"}


def make() -> ludus.Trainer:
    return OwnLoss(small_arena(max_iterations=2, evaluate_every_iterations=1))
