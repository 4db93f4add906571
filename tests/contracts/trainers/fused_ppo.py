"""PPO on a device game, every update a stage."""

from __future__ import annotations

import ludus
from tests.games.ppo.small import small_ppo

REFUSALS = {"waiting": "the rollouts of this iteration are not there"}


def make() -> ludus.Trainer:
    return ludus.build_trainer(small_ppo(max_rounds=3, num_epochs=1, keep_every_rounds=2))
