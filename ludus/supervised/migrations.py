"""Migrations of older configs that fit a network to examples: renamed keys and changed sections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config.families import FormerValue
from ludus.config.migrations import has_keys, rename_keys, sections_of
from ludus.core.errors import ConfigError

_KNOWN_BY = ("with_validation", "optimizer", "early_stopping")


def renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Rename the learning rate schedule to its current name, which agents' files already had."""
    if not has_keys(data, "schedule", *_KNOWN_BY) or "learning_rate_schedule" in data:
        return data
    return {
        "learning_rate_schedule" if key == "schedule" else key: value for key, value in data.items()
    }


def to_2(data: dict[str, Any]) -> dict[str, Any]:
    """Add the key of version 2, with the value that reproduces version 1."""
    if has_keys(data, *_KNOWN_BY):
        data.setdefault("parameter_groups", [])
    return data


def to_4(data: dict[str, Any]) -> dict[str, Any]:
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


NAMES = {"max_steps": "max_opt_steps", "milestone_every_epochs": "keep_every_epochs"}


def to_5(data: dict[str, Any]) -> dict[str, Any]:
    """Rename keys as in version 5."""
    for section in [*sections_of(data)]:
        rename_keys(section, NAMES, *_KNOWN_BY)
    return data


def to_6(data: dict[str, Any]) -> dict[str, Any]:
    """Bring validation, early stopping and the best model to the keys that other families have."""
    if not has_keys(data, *_KNOWN_BY, "best_model"):
        return data
    validation, best = data["with_validation"], data["best_model"]
    metric = f"{'validation' if validation else 'train'}/epoch_loss"
    changed = {
        "with_validation": int(validation) if isinstance(validation, bool) else validation,
        "early_stopping": evaluation_of(data["early_stopping"], best, otherwise=metric),
    }
    names = {"with_validation": "evaluate_every_epochs", "early_stopping": "evaluation"}
    return {
        names.get(key, key): changed.get(key, value)
        for key, value in data.items()
        if key != "best_model"
    }


_Section = Mapping[str, Any] | None
_KEYS = {
    "early_stopping": ("metric", "mode", "patience", "min_delta"),
    "best_model": ("metric", "mode", "keep"),
}
"""Sections of version 5, now one section `evaluation`, and their keys."""


def evaluation_of(
    early_stopping: _Section, best_model: _Section, *, otherwise: str
) -> dict[str, Any]:
    """Return the section `evaluation` for two sections of version 5; `otherwise` is its metric if both
    are null.
    """
    decides = best_model or early_stopping or {"metric": otherwise, "mode": None}
    stopping = early_stopping or {**decides, "patience": None, "min_delta": 0.0}
    is_other = any(stopping[key] != decides[key] for key in ("metric", "mode"))
    return {
        "metric": decides["metric"],
        "mode": decides["mode"],
        "keep": best_model["keep"] if best_model else 0,
        "patience": stopping["patience"],
        "min_delta": stopping["min_delta"],
        "stopping_metric": stopping["metric"] if is_other else None,
        "stopping_mode": stopping["mode"] if is_other else None,
        "target": None,
    }


def _as_in_5(now: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections of version 5 for a section `evaluation`, with null or 0 where one was null."""
    own = {"metric": now["metric"], "mode": now["mode"]}
    other = {"metric": now["stopping_metric"], "mode": now["stopping_mode"]}
    return {
        "early_stopping": {
            **(own if now["stopping_metric"] is None else other),
            "patience": now["patience"],
            "min_delta": now["min_delta"],
        },
        "best_model": {**own, "keep": now["keep"]},
    }


def _converted(name: str, key: str | None = None) -> FormerValue:
    """Return the function that converts a value of a section of version 5, or of one of its keys."""

    def convert(data: Mapping[str, Any], value: object) -> Mapping[str, object]:
        now = data["evaluation"]
        sections: dict[str, _Section] = {**_as_in_5(now)}
        if key is None and now["patience"] is None:
            sections["early_stopping"] = None
        if key is None and not now["keep"] and now["target"] is None:
            sections["best_model"] = None
        sections[name] = (
            {**(sections[name] or {}), key: value} if key else section_of_5(name, value)
        )
        if sections["best_model"] is None and now["target"] is not None:
            sections["best_model"] = {"metric": now["metric"], "mode": now["mode"], "keep": 0}
        found = evaluation_of(**sections, otherwise=now["metric"])
        return {f"evaluation.{one}": found[one] for one in found if one != "target"}

    return convert


def section_of_5(name: str, value: object) -> _Section:
    """Return a value of a section of version 5; raise ConfigError if it is neither null nor complete."""
    if value is None or (isinstance(value, Mapping) and {*value} == {*_KEYS[name]}):
        return value
    raise ConfigError(
        f"'{name}' was null or a section with {', '.join(_KEYS[name])}; write keys of 'evaluation' instead"
    )


def _interval(data: Mapping[str, Any], value: object) -> Mapping[str, object]:
    if not isinstance(value, bool):
        raise ConfigError(
            "'with_validation' was true or false; 'evaluate_every_epochs' is a number of epochs, 0 for never"
        )
    return {"evaluate_every_epochs": int(value)}


FORMER_NAMES = {
    **NAMES,
    "with_validation": "evaluate_every_epochs",
    "early_stopping": "evaluation",
    "early_stopping.metric": "evaluation.stopping_metric",
    "early_stopping.mode": "evaluation.stopping_mode",
    "early_stopping.patience": "evaluation.patience",
    "early_stopping.min_delta": "evaluation.min_delta",
    "best_model": "evaluation",
    **{f"best_model.{key}": f"evaluation.{key}" for key in _KEYS["best_model"]},
    "saving_metric": "evaluation.metric",
}
FORMER_VALUES = {
    "with_validation": _interval,
    "early_stopping": _converted("early_stopping"),
    "early_stopping.metric": _converted("early_stopping", "metric"),
    "early_stopping.mode": _converted("early_stopping", "mode"),
    "best_model": _converted("best_model"),
    "best_model.metric": _converted("best_model", "metric"),
    "best_model.mode": _converted("best_model", "mode"),
    "saving_metric": _converted("best_model", "metric"),
}
