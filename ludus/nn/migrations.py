"""What keys of optimizers and engines were called and meant in older files."""

from __future__ import annotations

from typing import Any

from ludus.config.migrations import has_keys, sections_of


def renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Give the key `compile`, which was true, false or auto, the name and the value it has now."""
    if not has_keys(data, "compile", "optimizer", "precision") or "engine" in data:
        return data
    if isinstance(data["compile"], bool):
        data["compile"] = "compiled" if data["compile"] else "tape"
    return {"engine" if key == "compile" else key: value for key, value in data.items()}


def to_2(data: dict[str, Any]) -> dict[str, Any]:
    """Take `nesterov` back where there is no momentum: nothing read it."""
    for section in sections_of(data):
        is_sgd = has_keys(section, "nesterov") and section.get("kind") == "sgd"
        if is_sgd and section.get("momentum") == 0:
            section["nesterov"] = False
    return data
