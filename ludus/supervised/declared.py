"""Registrations of the supervised family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config.families import declare
from ludus.supervised import migrations

# Names elsewhere of an interval of evaluations in optimisation steps, or in parts of an epoch.
_IN_STEPS = ("eval_steps", "val_check_interval")


def _in_epochs(name: str, path: str, data: Mapping[str, Any], value: object) -> str:
    """Return the key here of an interval that other libraries count in another unit."""
    return f" Here '{path}' decides that, in epochs." if name in _IN_STEPS else ""


declare(
    "ludus.supervised",
    lengths={"max_opt_steps": "opt_steps", "max_epochs": "epoch"},
    needs={"sklearn": "ludus[supervised]"},
    migrations={
        1: migrations.to_2, 3: migrations.to_4, 4: migrations.to_5, 5: migrations.to_6,
    },
    former_names=migrations.FORMER_NAMES,
    former_values=migrations.FORMER_VALUES,
    renamed=migrations.renamed,
    hint=_in_epochs,
    earlier_names={"schedule": "learning_rate_schedule"},
    other_names={
        "num_train_steps": ("max_opt_steps",),
        "n_epochs": ("max_epochs",),
        "epochs": ("max_epochs",),
        "schedule": ("learning_rate_schedule",),
        "lr": ("optimizer.learning_rate",),
        # The names in seeds of the library, Lightning and Hugging Face.
        "save_best": ("evaluation.keep",),
        "save_top_k": ("evaluation.keep",),
        "monitor": ("evaluation.metric",),
        "metric_for_best_model": ("evaluation.metric",),
        "early_stopping_patience": ("evaluation.patience",),
        "check_val_every_n_epoch": ("evaluate_every_epochs",),
        "eval_steps": ("evaluate_every_epochs",),
        "val_check_interval": ("evaluate_every_epochs",),
    },
)  # fmt: skip
