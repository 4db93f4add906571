"""IQN, with softmax exploration and the plan counted in epochs."""

from __future__ import annotations

import ludus
from tests.rl.small import SELDOM, small

REFUSALS = {"replay_buffer": "is empty, so nothing can be drawn"}


def make() -> ludus.Trainer:
    epochs = {
        "max_env_steps": 90,
        "log_every_epochs": 2,
        "evaluate_every_epochs": 3,
        "keep_every_epochs": 4,
        "steps_per_epoch": 2,
        "updates_per_env_step": 0.5,
        "max_opt_steps": None,
    }
    changes = {"exploration.kind": "softmax", **SELDOM}
    return ludus.build_trainer(small("iqn", counted_in="epochs", epochs=epochs, **changes))
