"""The real supervised trainer with everything on: accumulation, EMA, schedule, early stop, best model."""

from __future__ import annotations

import ludus


def make() -> ludus.Trainer:
    config = ludus.example("supervised").replace(
        max_epochs=6,
        accumulate=3,
        ema_decay=0.9,
        batch_size=100,
        log_every_opt_steps=2,
        model={
            "kind": "mlp",
            "inputs": 64,
            "widths": [8],
            "outputs": 10,
            "activation": "relu",
            "layer_norm": False,
            "dropout": 0.2,
        },
        data={
            "kind": "digits",
            "validation_fraction": 0.2,
            "test_fraction": 0.2,
            "standardise": True,
        },
        evaluation__stopping_metric="validation/epoch_accuracy",
        evaluation__patience=2,
        evaluation__min_delta=0.02,
        # The first epoch is the best by this measure, so that forgetting it would show.
        evaluation__metric="train/epoch_loss",
        evaluation__mode="max",
        evaluation__keep=2,
        keep_every_epochs=2,
        learning_rate_schedule={
            "kind": "cosine",
            "warmup_steps": 2,
            "final": 0.0,
            "total_steps": None,
        },
        **{
            "settings.display": "none",
            "settings.threads": 1,
            "settings.checkpoint.every_stages": 11,
            "settings.loggers": [{"kind": "csv"}],
        },
    )
    return ludus.Trainer(config)
