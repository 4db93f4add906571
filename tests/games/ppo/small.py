"""Small real runs of PPO on device games, for tests."""

from __future__ import annotations

from typing import Any

import ludus
from tests.rl.small import in_pieces

SMALL: dict[str, Any] = {
    "settings.display": "none",
    "settings.loggers": [],
    "settings.threads": 1,
    "game.max_steps": 12,
    "max_rounds": 6,
    "num_games": 6,
    "rollout_steps": 5,
    "num_epochs": 2,
    "minibatches": 3,
    "fused": False,
    "widths": [8],
    "optimizer.learning_rate": 0.01,
    "learning_rate_schedule": {"kind": "constant", "warmup_steps": 0},
    "max_grad_norm": None,
    "engine": "tape",
    "log_every_rounds": 1,
    "keep_every_rounds": 4,
    "evaluate_every_rounds": 2,
    "evaluation.episodes": 4,
    "evaluation.target": None,
}
SELF_PLAY: dict[str, Any] = {
    "game": {"kind": "tic_tac_toe"},
    "evaluation.opponent": {"kind": "random"},
    "evaluation.episodes": 8,
    "minibatches": 2,
}


def small_ppo(**changed: Any) -> Any:
    """Return the config of a run that takes well under a second; sections are changed by path."""
    own = {key: value for key, value in SMALL.items() if not ("game" in changed and "game." in key)}
    num_roles = 2 if changed.get("game", {}).get("kind") in ("tic_tac_toe", "connect_four") else 1
    changes = in_pieces({**own, **changed}, "num_games", num_roles)
    return ludus.example("fused_ppo").replace(**changes)


def small_self_play(**changed: Any) -> Any:
    """Return the same for tic-tac-toe, which one network plays on both sides."""
    return small_ppo(**{**SELF_PLAY, **changed})
