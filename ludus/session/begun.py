"""What a run that has begun decided for good, so that a resume does not decide it anew."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from ludus.config import strict_yaml
from ludus.config.base import current
from ludus.core.errors import LudusError
from ludus.core.services import Files
from ludus.store.directory import events, last_ending
from ludus.store.storage import Storage

CHANGED = "changed_by_fit"
"""The event that `fit` changed keys of the config: `keys` has each with its value."""
_DECIDED = ("engine", "memory_format")
"""Keys that may say auto, and in a run that has begun what was chosen then."""
_NOTHING = object()


class Change(str):
    """A sentence for the user that a key has another value, which also has them as data."""

    __slots__ = ("keys",)
    keys: Mapping[str, object]


def changes_by_fit(config: object, changes: Mapping[str, object], max_steps: int) -> list[str]:
    """Return a sentence for each key that `fit(max_steps=...)` changes besides the length, by its path."""
    notes: list[str] = []
    for path, value in changes.items():
        before = functools.reduce(getattr, path.split("."), config)
        note = Change(
            f"for fit(max_steps={max_steps}) '{path}' is {_shown(value)} rather than {_shown(before)}"
        )
        note.keys = {path: value}
        notes.append(note)
    return notes


def _shown(value: object) -> object:
    return "null" if value is None else value


def data_of(text: str) -> dict[str, Any]:
    """Return what an event says besides the sentence."""
    return {"keys": dict(text.keys)} if isinstance(text, Change) else {}


def has_begun(files: Files | None) -> bool:
    """Return whether these are the files of a run that has begun."""
    return files is not None and files.exists("run.json")


def as_begun(config: Any, files: Files | Begun | None, notes: list[str] | None = None) -> Any:
    """Return the config with what the run of these files decided when it began.

    Its length may have grown since, and by the length go `engine: auto`, and the intervals that a shorter
    `fit(max_steps=...)` had set to 0: they stay so, and `notes` is given a sentence for each. Without such a
    run the config is returned as it is.
    """
    begun = files if isinstance(files, Begun) else Begun(files)
    decided = {
        key: begun.config[key]
        for key in _DECIDED
        if getattr(config, key, None) == "auto" and isinstance(begun.config.get(key), str)
    }
    config = config.replace(**decided) if decided else config
    now = config.model_dump()
    kept = {
        path: value
        for path, value in begun.turned_off().items()
        if _value(begun.config, path) == value != _value(now, path)
    }
    if notes is not None:
        notes += [
            f"'{path}' stays {_shown(value)}, as the fit(max_steps=...) that began the run left it"
            for path, value in kept.items()
        ]
    return config.replace(**kept) if kept else config


class Begun:
    """What the run of these files decided, if there is one; its config is read once, and only if needed."""

    def __init__(self, files: Files | None) -> None:
        self._files = files

    @functools.cached_property
    def config(self) -> Mapping[str, Any]:
        """The config that the run has now; an empty one where there is no such run."""
        return _begun_config(self._files)

    def turned_off(self) -> dict[str, object]:
        """Return the keys that a `fit` of this run has set to 0 or null, since it was too short for them."""
        if not isinstance(self._files, Storage) or not has_begun(self._files):
            return {}
        told = [event.get("keys") for event in events(self._files, CHANGED)]
        keys = [pair for one in told if isinstance(one, dict) for pair in one.items()]
        return {path: value for path, value in keys if value is None or value == 0}

    def counters_at_end(self) -> Mapping[str, int]:
        """Return the counters with which the run has ended; none where it has not."""
        if not isinstance(self._files, Storage) or not has_begun(self._files):
            return {}
        try:
            ending = last_ending(self._files) or {}
        except LudusError:
            return {}
        counters: Mapping[str, int] = ending.get("counters", {})
        return counters if ending.get("event") == "finished" else {}


def _value(data: Any, path: str) -> object:
    """Return what a dotted path names in nested mappings; a mark of its own where there is nothing."""
    for key in path.split("."):
        if not isinstance(data, Mapping) or key not in data:
            return _NOTHING
        data = data[key]
    return data


def _begun_config(files: Files | None) -> Mapping[str, Any]:
    if files is None or not files.exists("config.yaml"):
        return {}
    try:
        text = files.read("config.yaml", limit=strict_yaml.MAX_BYTES)
        return current(strict_yaml.parse(text, source="config.yaml"), source="config.yaml")
    except LudusError:
        return {}  # the resume itself tells what is wrong with it
