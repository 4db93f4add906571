"""The real active trainer, warm: every round goes on with the weights and the moments of the last."""

from __future__ import annotations

import ludus
from tests.active.conftest import small_active

INERT = ("candidates", "progress")
"""There is one model, so there is nothing to choose, and nothing but the budget to stop by."""
REFUSALS = {
    "pool": "the saved state of 'train_data' does not fit it",
    # Boundaries that are counted anew name best models that are not there.
    "run": "model.json cannot be read",
}


def make() -> ludus.Trainer:
    """Return a run of three rounds whose last one asks for what is left of its budget."""
    trainer: ludus.Trainer = ludus.build_trainer(
        small_active(
            round_start="warm",
            keep_every_epochs=2,
            ema_decay=0.9,
            strategy={"kind": "uncertainty", "shortlist": 3},
            # The first epoch of a round is the best by this measure, so that forgetting it would show.
            evaluation__metric="train/epoch_loss", evaluation__mode="max", evaluation__keep=2,
            stopping={
                "max_labels": 12, "target_accuracy": None, "stable_share": None, "stable_rounds": 1
            },
            **{"settings.checkpoint.every_stages": 3},
        )
    )  # fmt: skip
    return trainer
