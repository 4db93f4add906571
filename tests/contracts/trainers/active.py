"""The real active trainer, cold: every round begins anew, early stopping ends one, the pool is looked at."""

from __future__ import annotations

from typing import Any

import ludus
from tests.active.conftest import small_active
from tests.command_line import MODEL

REFUSALS = {"pool": "the saved state of 'train_data' does not fit it"}
"""There are no batches of labels that the pool does not have."""


def candidate(name: str) -> dict[str, Any]:
    """Return a network to choose from, drawn by its name."""
    return {"name": name, "model": {**MODEL, "dropout": 0.2}, "weights": None}


def make() -> ludus.Trainer:
    """Return a run of four rounds that stops once its predictions are stable, or its labels are used up."""
    trainer: ludus.Trainer = ludus.build_trainer(
        small_active(
            round_start="cold",
            model=None,
            candidates=[candidate("one"), candidate("two")],
            selection="logme",
            seed=3,
            keep_every_epochs=2,
            max_rounds=4,
            max_epochs=3,
            accumulate=2,
            ema_decay=0.9,
            strategy={"kind": "margin", "shortlist": None},
            evaluation__patience=1,
            evaluation__min_delta=0.05,
            stopping={
                "max_labels": 17, "target_accuracy": 0.999, "stable_share": 0.99, "stable_rounds": 2
            },
            learning_rate_schedule={
                "kind": "linear", "warmup_steps": 1, "final": 0.0, "total_steps": None
            },
            **{"settings.checkpoint.every_stages": 2},
        )
    )  # fmt: skip
    return trainer
