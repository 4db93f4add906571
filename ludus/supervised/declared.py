"""Registrations of the supervised family."""

from typing import Any

from ludus.config.families import declare
from ludus.config.migrations import has_keys, rename_keys, sections_of

_KNOWN_BY = ("with_validation", "optimizer", "early_stopping")


def _renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Rename the learning rate schedule to its current name, which agents' files already had."""
    if not has_keys(data, "schedule", *_KNOWN_BY) or "learning_rate_schedule" in data:
        return data
    return {
        "learning_rate_schedule" if key == "schedule" else key: value for key, value in data.items()
    }


def _to_2(data: dict[str, Any]) -> dict[str, Any]:
    """Add the key of version 2, with the value that reproduces version 1."""
    if has_keys(data, *_KNOWN_BY):
        data.setdefault("parameter_groups", [])
    return data


def _to_4(data: dict[str, Any]) -> dict[str, Any]:
    """Add the keys of version 4, with the values that reproduce version 3."""
    if not has_keys(data, *_KNOWN_BY):
        return data
    data.setdefault("memory_format", "contiguous")
    if isinstance(best := data.get("best_model"), dict):
        best.setdefault("keep", 1)
    data.setdefault("gradient_checkpointing", [])
    # torch's default.
    data.setdefault("tf32", "convolutions")
    return data


_NAMES = {"max_steps": "max_opt_steps", "milestone_every_epochs": "keep_every_epochs"}


def _to_5(data: dict[str, Any]) -> dict[str, Any]:
    """Rename keys as in version 5."""
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
