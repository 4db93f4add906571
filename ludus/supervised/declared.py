"""What the supervised family adds to the words of the library."""

from typing import Any

from ludus.config.families import declare
from ludus.config.migrations import has_keys, rename_keys, sections_of

_KNOWN_BY = ("with_validation", "optimizer", "early_stopping")


def _renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Give the schedule of the learning rate the name it has now, which agents' files had before."""
    if not has_keys(data, "schedule", *_KNOWN_BY) or "learning_rate_schedule" in data:
        return data
    return {
        "learning_rate_schedule" if key == "schedule" else key: value for key, value in data.items()
    }


def _to_2(data: dict[str, Any]) -> dict[str, Any]:
    """Give the key that version 2 added the value that version 1 behaved by."""
    if has_keys(data, *_KNOWN_BY):
        data.setdefault("parameter_groups", [])
    return data


def _to_4(data: dict[str, Any]) -> dict[str, Any]:
    """Give the keys that version 4 added the values that version 3 behaved by."""
    if not has_keys(data, *_KNOWN_BY):
        return data
    data.setdefault("memory_format", "contiguous")
    if isinstance(best := data.get("best_model"), dict):
        best.setdefault("keep", 1)
    data.setdefault("gradient_checkpointing", [])
    # What torch does unless it is told otherwise.
    data.setdefault("tf32", "convolutions")
    return data


_NAMES = {"max_steps": "max_opt_steps", "milestone_every_epochs": "keep_every_epochs"}


def _to_5(data: dict[str, Any]) -> dict[str, Any]:
    """Give keys the names of version 5."""
    for section in [*sections_of(data)]:
        rename_keys(section, _NAMES, *_KNOWN_BY)
    return data


declare(
    "ludus.supervised",
    lengths={"max_opt_steps": "opt_steps", "max_epochs": "epoch"},
    needs={"sklearn": "ludus[supervised]"},
    migrations={1: _to_2, 3: _to_4, 4: _to_5},
    former_names=_NAMES,
    renamed=_renamed,
    earlier_names={"schedule": "learning_rate_schedule"},
    other_names={
        "num_train_steps": ("max_opt_steps",),
        "n_epochs": ("max_epochs",),
        "epochs": ("max_epochs",),
        "schedule": ("learning_rate_schedule",),
        "lr": ("optimizer.learning_rate",),
    },
)
