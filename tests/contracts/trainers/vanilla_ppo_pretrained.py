"""PPO under a protocol, after the bodies of both agents have learned alone."""

from __future__ import annotations

import ludus
from tests.arena.initialisation.test_pretraining import pretrained

REFUSALS = {
    "run": "pretraining is under way, but its weights are not there",
    "waiting": "the rollouts of this iteration are not there",
}


def make() -> ludus.Trainer:
    return ludus.build_trainer(pretrained({"iterations": 1}, evaluate_every_iterations=1))
