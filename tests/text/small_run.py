"""Small runs of text on the provider of tables."""

from __future__ import annotations

from typing import Any

import ludus
from ludus.config.base import TrainerConfig
from tests.text import (
    tabular as tabular,
    tabular_training as tabular_training,
)  # register providers

SMALL: dict[str, Any] = {
    "scenario.num_letters": 5,
    "scenario.num_as": [2, 3],
    "scenario.num_seen": 2,
    "max_iterations": 3,
    "rl.rollouts_per_iteration": 24,
    "rl.rollouts_per_question": 4,
    "pretraining.num_episodes": 8,
    "provider": {"kind": "tabular"},
    "settings.loggers": [],
    "settings.display": "none",
    "settings.checkpoint.every_stages": 1,
    "settings.checkpoint.every_seconds": 0.0,
}


def small_ei(**changes: object) -> TrainerConfig:
    """Return the config of a small run of expert iteration."""
    return ludus.example("pure_text_ei", **{**SMALL, **changes})


def small_malt(**changes: object) -> TrainerConfig:
    """Return the config of a small run of MALT."""
    own = {"rl.rollouts_per_question": 4, "malt.responses_per_turn": 2}
    return ludus.example("pure_text_malt", **{**SMALL, **own, **changes})


def small_pg(**changes: object) -> TrainerConfig:
    """Return the config of a small run of policy gradients."""
    own = {"provider": {"kind": "tabular_training"}, "policy_gradient.minibatch_size": 8}
    return ludus.example("pure_text_pg", **{**SMALL, **own, **changes})
