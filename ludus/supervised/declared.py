"""What the supervised family adds to the words of the library."""

from typing import Any

from ludus.config.migrations import has_keys
from ludus.config.rooms import declare


def _to_2(data: dict[str, Any]) -> dict[str, Any]:
    """Give the key that version 2 added the value that version 1 behaved by."""
    if has_keys(data, "with_validation", "optimizer", "early_stopping"):
        data.setdefault("parameter_groups", [])
    return data


declare(
    "ludus.supervised",
    lengths={"max_steps": "opt_steps", "max_epochs": "epoch"},
    needs={"sklearn": "ludus[supervised]"},
    migrations={1: _to_2},
    other_names={
        "num_train_steps": ("max_steps",),
        "n_epochs": ("max_epochs",),
        "epochs": ("max_epochs",),
        "compile": ("engine",),
        "lr": ("optimizer.learning_rate",),
    },
)
