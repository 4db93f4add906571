"""DQN with everything on: several envs, priorities, n steps, dueling, normalisation."""

from __future__ import annotations

import ludus
from tests.rl.small import NORMALISE, PRIORITISED, SELDOM, small

REFUSALS = {"replay_buffer": "is empty, so nothing can be drawn"}


def make() -> ludus.Trainer:
    changes = {"replay.prioritised": PRIORITISED, "n_step": 3, "dueling": True, **SELDOM}
    return ludus.build_trainer(small("dqn", normalise=NORMALISE, **changes))
