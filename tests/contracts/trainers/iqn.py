"""IQN, with softmax exploration and the plan counted in epochs."""

from __future__ import annotations

import ludus
from tests.rl.small import SELDOM, small

REFUSALS = {"replay_buffer": "is empty, so nothing can be drawn"}


def make() -> ludus.Trainer:
    epochs = {
        "max_env_steps": 90,
        "record_freq": 2,
        "eval_freq": 3,
        "save_freq": 4,
        "steps_per_epoch": 2,
        "updates_per_env_step": 0.5,
        "max_opts": None,
    }
    changes = {"exploration.kind": "softmax", **SELDOM}
    return ludus.build_trainer(small("iqn", counted_in="epochs", epochs=epochs, **changes))
