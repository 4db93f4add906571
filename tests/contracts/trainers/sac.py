"""SAC, whose evaluations stop it early."""

from __future__ import annotations

import ludus
from tests.rl.small import SELDOM, small

REFUSALS = {"replay_buffer": "is empty, so nothing can be drawn"}


def make() -> ludus.Trainer:
    changes = {"evaluation.patience": 2, "evaluation.min_delta": 1e6, "steps.max_opt_steps": 60}
    return ludus.build_trainer(small("sac", **changes, **SELDOM))
