"""PPO in a parallel env, with running statistics of what agents see; every update a stage."""

from __future__ import annotations

import ludus
from tests.arena.pettingzoo.made import small_env

REFUSALS = {"waiting": "the rollouts of this iteration are not there"}


def make() -> ludus.Trainer:
    return ludus.build_trainer(small_env())
