"""PPO by self-play with past players, whole rounds as stages."""

from __future__ import annotations

import ludus
from tests.games.ppo.small import small_self_play

PAST = {"size": 2, "keep_every_rounds": 2, "share": 0.5}


def make() -> ludus.Trainer:
    return ludus.build_trainer(small_self_play(fused=True, past_players=PAST, max_rounds=5))
