"""Section presets: the values that a section has after its `kind` is changed to another."""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

from ludus.config import families, strict_yaml
from ludus.config.registry import find, kinds, section_files

_CATEGORIES = {
    "data": "dataset",
    "engine": "sweep_engine",
    "learning_rate_schedule": "schedule",
    "beta_schedule": "schedule",
    "scenario": "text_scenario",
}
"""Key of a section -> the category of its kinds, where the two differ."""


def section_of_kind(key: str, kind: str, present: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the section at this key with another kind; None if the kind has no preset.

    Its values are those of the preset; a key that the preset leaves open keeps its present value, and
    one that only the user can know is null, which validation refuses unless it is set.
    """
    category = _CATEGORIES.get(key, key)
    if category not in section_files() or kind not in kinds(category):
        return None
    if key != category and present.get("kind") not in kinds(category):
        # The key is that of another category too: scenarios of the arena have no presets.
        return None
    preset = _presets(category).get(kind)
    if preset is None:
        return None
    values = {**present, **copy.deepcopy(preset), "kind": kind}
    fields: Mapping[str, Any] = _config_of(category, kind).model_fields
    return {name: values.get(name) for name in fields}


def _config_of(category: str, kind: str) -> Any:
    found = find(category, kind)
    return getattr(found, "Config", found)


@functools.cache
def _presets(category: str) -> dict[str, dict[str, Any]]:
    path = section_files()[category]
    found: dict[str, dict[str, Any]] = strict_yaml.parse(path.read_bytes(), source=str(path))
    assert found.keys() <= {*families.listed(category)}, f"{path} has a kind that does not exist"
    return found
