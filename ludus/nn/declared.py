"""The categories, extras and migrations that this room declares to the config."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config.families import declare
from ludus.config.migrations import has_keys, sections_of


def _renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Rename the key `compile`, which was true, false or auto, to `engine` and convert its value."""
    if not has_keys(data, "compile", "optimizer", "precision") or "engine" in data:
        return data
    if isinstance(data["compile"], bool):
        data["compile"] = _engine(data["compile"])
    return {"engine" if key == "compile" else key: value for key, value in data.items()}


def _engine_for(name: str, path: str, data: Mapping[str, Any], value: object) -> str:
    """Return a hint at what to write where `compile` was true or false."""
    if name != "compile" or not isinstance(value, bool):
        return ""
    return f" Write {path}={_engine(value)}."


def _engine(is_compiled: bool) -> str:
    return "compiled" if is_compiled else "tape"


def _to_2(data: dict[str, Any]) -> dict[str, Any]:
    """Unset `nesterov` where there is no momentum: nothing read it."""
    for section in sections_of(data):
        is_sgd = has_keys(section, "nesterov") and section.get("kind") == "sgd"
        if is_sgd and section.get("momentum") == 0:
            section["nesterov"] = False
    return data


declare(
    "ludus.nn",
    categories={"model": "models", "optimizer": "optimizers", "schedule": "schedules"},
    needs={
        "transformers": "ludus[huggingface]",
        "peft": "ludus[huggingface]",
        "onnxscript": "ludus[export]",
    },
    migrations={1: _to_2},
    renamed=_renamed,
    earlier_names={"compile": "engine"},
    hint=_engine_for,
)
