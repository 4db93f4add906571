"""PPO with normalisation."""

from __future__ import annotations

import ludus
from tests.rl.small import NORMALISE, small


def make() -> ludus.Trainer:
    return ludus.build_trainer(small("ppo", normalise=NORMALISE))
