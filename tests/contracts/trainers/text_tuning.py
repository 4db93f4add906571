"""Fine-tuning by preferences with everything on: accumulation, a schedule, best models, early stopping."""

from __future__ import annotations

import ludus
from tests.text.tuning.small import DPO, small_tuning

REFUSALS = {"reference": "the log-probabilities of the reference model are missing"}


def make() -> ludus.Trainer:
    return ludus.build_trainer(
        small_tuning(
            method=DPO,
            accumulate=3,
            max_epochs=5,
            max_grad_norm=1.0,
            log_every_opt_steps=3,
            keep_every_epochs=2,
            # The first epoch is the best by this measure, so that forgetting it would show.
            evaluation__metric="train/epoch_loss",
            evaluation__mode="max",
            evaluation__keep=2,
            evaluation__stopping_metric="validation/epoch_loss",
            evaluation__patience=2,
            learning_rate_schedule={
                "kind": "cosine",
                "warmup_steps": 2,
                "final": 0.0,
                "total_steps": None,
            },
            **{"settings.checkpoint.every_stages": 5},
        )
    )
