"""REINFORCE under a protocol, with a critic."""

from __future__ import annotations

import ludus
from tests.arena.small import small_arena

REFUSALS = {"waiting": "the rollouts of this iteration are not there"}


def make() -> ludus.Trainer:
    changed = {"rl.num_epochs": 1, "max_iterations": 2, "evaluate_every_iterations": 1}
    return ludus.build_trainer(small_arena("reinforce", engine="eager", **changed))
