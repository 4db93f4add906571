"""Small real runs of PPO on device games, for tests."""

from __future__ import annotations

from typing import Any

import ludus

SMALL: dict[str, Any] = {
    "settings.display": "none",
    "settings.loggers": [],
    "settings.threads": 1,
    "game.max_steps": 12,
    "max_rounds": 6,
    "num_games": 6,
    "rollout_steps": 5,
    "passes": 2,
    "minibatches": 3,
    "fused": False,
    "widths": [8],
    "optimizer.learning_rate": 0.01,
    "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0},
    "max_grad_norm": None,
    "engine": "tape",
    "record_every_rounds": 1,
    "save_every_rounds": 4,
    "evaluation.every_rounds": 2,
    "evaluation.games": 4,
    "evaluation.target": None,
}
SELF_PLAY: dict[str, Any] = {
    "game": {"kind": "tic_tac_toe"},
    "evaluation.opponent": {"kind": "random"},
    "evaluation.games": 8,
    "minibatches": 2,
}


def small_ppo(**changed: Any) -> Any:
    """Return the config of a run that takes well under a second; sections are changed by path."""
    own = {key: value for key, value in SMALL.items() if not ("game" in changed and "game." in key)}
    return ludus.example("fused_ppo").replace(**{**own, **changed})


def small_self_play(**changed: Any) -> Any:
    """Return the same for tic-tac-toe, which one network plays on both sides."""
    return small_ppo(**{**SELF_PLAY, **changed})
