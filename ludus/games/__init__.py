"""Games that live on the device: thousands of them as one batch of tensors, with those who learn to play.

Names are imported when first used, so that this costs little and needs no gymnasium.
"""

from __future__ import annotations

import importlib
from typing import Any

_WHERE = {
    "Bounds": "ludus.games.game",
    "DQNTrainer": "ludus.games.trainers.fused_dqn",
    "FusedGame": "ludus.games.game",
    "HironakaAgentEnv": "ludus.games.hironaka.gym_env",
    "HironakaHostEnv": "ludus.games.hironaka.gym_env",
    "Moves": "ludus.games.game",
    "PPOTrainer": "ludus.games.trainers.fused_ppo",
    "Player": "ludus.games.player",
    "Step": "ludus.games.game",
    "TwoRoleTrainer": "ludus.games.dqn.trainer",
    "game_tree": "ludus.games.tree",
    "make_game": "ludus.games.kinds",
    "make_net": "ludus.games.networks",
    "make_player": "ludus.games.player",
    "playoffs": "ludus.games.playoffs",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module 'ludus.games' has no attribute '{name}'")
    value = getattr(importlib.import_module(_WHERE[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_WHERE})
