"""Policy gradients of models that are tables."""

from __future__ import annotations

import ludus
from tests.text.small_run import small_pg

REFUSALS = {
    "rollouts": "has no rollouts",
    "training_verifier": "has no model to train",
    # Its trained model goes on where it was, and answers what it was asked before.
    "run": "no model training-0",
}


def make() -> ludus.Trainer:
    return ludus.build_trainer(small_pg(**{"text_rl.test_scheme": "all"}))
