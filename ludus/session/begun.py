"""What a run that has begun decided for good, so that a resume does not decide it anew."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ludus.config import strict_yaml
from ludus.config.base import current
from ludus.core.errors import LudusError
from ludus.core.services import Files
from ludus.store.directory import events, last_ending
from ludus.store.storage import Storage

_OFF = re.compile(r"for fit\(max_steps=\d+\) '([\w.]+)' is (0|0\.0|null) rather than ")
_NOTHING = object()


def has_begun(files: Files | None) -> bool:
    """Return whether these are the files of a run that has begun."""
    return files is not None and files.exists("run.json")


def as_begun(config: Any, files: Files | None, notes: list[str] | None = None) -> Any:
    """Return the config with what the run of these files decided when it began.

    Its length may have grown since, and by the length go `engine: auto`, and the intervals that a shorter
    `fit(max_steps=...)` had set to 0: they stay so, and `notes` is given a sentence for each. Without such a
    run the config is returned as it is.
    """
    begun = begun_config(files)
    before = begun.get("engine")
    if config.engine == "auto" and isinstance(before, str):
        config = config.replace(engine=before)
    kept = {
        path: value
        for path, value in _turned_off(files)
        if _value(begun, path) == value != _value(config.model_dump(), path)
    }
    if notes is not None:
        notes += [
            f"'{path}' stays {'null' if value is None else value}, as the fit(max_steps=...) that began the"
            " run left it"
            for path, value in kept.items()
        ]
    return config.replace(**kept) if kept else config


def _turned_off(files: Files | None) -> list[tuple[str, object]]:
    """Return the keys that a `fit` of this run has set to 0 or null, since it was too short for them."""
    if not isinstance(files, Storage) or not has_begun(files):
        return []
    told = [str(event.get("reason")) for event in events(files, "changed_by_fit")]
    found = [match for reason in told if (match := _OFF.match(reason))]
    return [(match[1], None if match[2] == "null" else 0) for match in found]


def _value(data: Any, path: str) -> object:
    """Return what a dotted path names in nested mappings; a mark of its own where there is nothing."""
    for key in path.split("."):
        if not isinstance(data, Mapping) or key not in data:
            return _NOTHING
        data = data[key]
    return data


def begun_config(files: Files | None) -> Mapping[str, Any]:
    """Return the config that the run of these files has now; an empty one where there is no such run."""
    if files is None or not files.exists("config.yaml"):
        return {}
    try:
        text = files.read("config.yaml", limit=strict_yaml.MAX_BYTES)
        return current(strict_yaml.parse(text, source="config.yaml"), source="config.yaml")
    except LudusError:
        return {}  # the resume itself tells what is wrong with it


def counters_at_end(files: Files | None) -> Mapping[str, int]:
    """Return the counters with which the run of these files has ended; none where it has not."""
    if not isinstance(files, Storage) or not has_begun(files):
        return {}
    try:
        ending = last_ending(files) or {}
    except LudusError:
        return {}
    counters: Mapping[str, int] = ending.get("counters", {})
    return counters if ending.get("event") == "finished" else {}
