"""Who watches a supervised run: the guard against divergence, early stopping, the best model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.run.logger import Logger
from ludus.run.observers import BestModel, EarlyStopping, FiniteGuard, mode_of
from ludus.supervised.config import SupervisedConfig

_GUARDED = ("train/loss", "train/grad_norm", "train/epoch_loss")


def make_watchers(
    config: SupervisedConfig,
    logger: Logger,
    *,
    check: Callable[[], None],
    save: Callable[[str, dict[str, Any]], None],
) -> dict[str, Any]:
    """Return the observers this config asks for, by name, in the order they are called."""
    watchers: dict[str, Any] = {"guard": FiniteGuard(logger, metrics=_GUARDED, check=check)}
    if (stopping := config.early_stopping) is not None:
        watchers["early_stopping"] = EarlyStopping(
            logger,
            metric=stopping.metric,
            patience=stopping.patience,
            mode=mode_of(stopping.metric, stopping.mode),
            min_delta=stopping.min_delta,
            ask=lambda run, reason: run.stop(f"early stopping: {reason}"),
        )
    if (best := config.best_model) is not None:
        mode = mode_of(best.metric, best.mode)
        watchers["best"] = BestModel(logger, metric=best.metric, mode=mode, save=save)
    return watchers
