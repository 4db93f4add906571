"""The categories, extras and migrations that this room declares to the config."""

from ludus.config.families import declare
from ludus.nn import migrations

declare(
    "ludus.nn",
    categories={"model": "models", "optimizer": "optimizers", "schedule": "schedules"},
    needs={"transformers": "ludus[huggingface]", "peft": "ludus[huggingface]"},
    migrations={1: migrations.to_2},
    renamed=migrations.renamed,
    earlier_names={"compile": "engine"},
    hint=migrations.engine_for,
)
