"""Who watches a supervised run: the guard, early stopping, the best model, milestones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.core import Every, Run
from ludus.core.services import Log
from ludus.judge.observers import BestModel, EarlyStopping, FiniteGuard, Milestones, mode_of
from ludus.supervised.config import SupervisedConfig

_GUARDED = ("train/loss", "train/grad_norm", "train/epoch_loss")


def make_watchers(
    config: SupervisedConfig,
    logger: Log,
    *,
    check: Callable[[], None],
    save: Callable[[str, dict[str, Any]], None],
    name: Callable[[Run], str],
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
    cadence = Every(config.milestone_every_epochs, "epoch")
    watchers["milestones"] = Milestones(cadence, name=name, save=save)
    return watchers
