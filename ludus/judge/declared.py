"""Directions of common metrics: whether lower or higher is better, by the words of their names."""

from __future__ import annotations

from typing import Final

from ludus.config.families import declare

_MINIMISED: Final = (
    *("loss", "losses", "error", "errors", "err", "nll", "perplexity", "mse", "mae", "rmse"),
    "regret",
)
_MAXIMISED: Final = (
    *("accuracy", "acc", "reward", "rewards", "rew", "return", "returns", "score", "scores", "f1"),
    *("auc", "auroc", "precision", "recall", "success", "win", "wins", "elo"),
)

declare(
    "ludus.judge",
    directions={**dict.fromkeys(_MINIMISED, "min"), **dict.fromkeys(_MAXIMISED, "max")},
)
