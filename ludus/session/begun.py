"""Settings fixed when a run began, so that a resume does not choose them again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypedDict, TypeVar

from ludus.config import strict_yaml
from ludus.config.base import current
from ludus.config.overrides import renamed_path, value_at
from ludus.core.errors import ConfigError, LudusError
from ludus.core.run import Run
from ludus.core.services import CHANGED as CHANGED, Files
from ludus.store.directory import events, last_ending
from ludus.store.storage import Storage

_DECIDED = ("engine", "memory_format")
"""Keys that may be `auto`; the choice is fixed when the run begins."""
C = TypeVar("C", bound=Any)


class Change(str):
    """A message that a key has another value; `keys` holds the same as data."""

    __slots__ = ("keys",)
    keys: Mapping[str, object]


def begin(
    config: C,
    files: Files | None,
    max_steps: int | None,
    shorten: Callable[[C, int], tuple[C, list[str]]],
) -> tuple[C, list[str]]:
    """Return the config that a run begins or goes on with, and a sentence for each key that had to change.

    `shorten` gives it the number of optimisation steps passed to `fit`, if one was; see `in_whole`.
    """
    notes: list[str] = []
    if max_steps is not None:
        if max_steps < 1:
            raise ConfigError(f"fit was given max_steps={max_steps}; a run has one step at least")
        config, notes = shorten(config, max_steps)
    return as_begun(config, files, notes), notes


def in_whole(config: C, max_steps: int, *, unit: str, opts_each: int) -> tuple[C, list[str]]:
    """Return the config of a run of at least this many optimisation steps, in whole rounds, and the changes.

    `unit` is a round or an iteration, of `opts_each` optimisation steps, and the key is `max_<unit>s`. An
    interval that the run never reaches becomes 0 (`config.unreached`).
    """
    count = -(-max_steps // opts_each)
    changes = config.model_copy(update={f"max_{unit}s": count}).unreached()
    notes = changes_by_fit(config, changes, max_steps)
    if count * opts_each != max_steps:
        notes.append(
            f"for fit(max_steps={max_steps}) the run makes {count * opts_each} optimisation steps, {count}"
            f" whole {unit}s of {opts_each}"
        )
    return config.replace(**{f"max_{unit}s": count}, **changes), notes


def changes_by_fit(config: object, changes: Mapping[str, object], max_steps: int) -> list[str]:
    """Return a message for each key that `fit(max_steps=...)` changes besides the length, by its path."""
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
    """Return the data of an event besides its message."""
    return {"keys": dict(text.keys)} if isinstance(text, Change) else {}


def has_begun(files: Files | None) -> bool:
    """Return whether these are the files of an existing run."""
    return files is not None and files.exists("run.json")


class EngineOptions(TypedDict):
    """Facts about a run that the choice of its engine depends on, besides the update and the config."""

    has_begun: bool
    tell: Callable[[str], None]


def engine_options(run: Run) -> EngineOptions:
    """Return whether the run has begun, and what tells it what an engine finds out later."""
    return {
        "has_begun": has_begun(run.files),
        "tell": lambda note: run.tell(note, event="engine"),
    }


def as_begun(config: C, files: Files | Begun | None, notes: list[str] | None = None) -> C:
    """Return the config with the settings that the run in these files fixed when it began.

    A resume may lengthen the run. `engine: auto` depends on the length, and so do the intervals that a
    shorter `fit(max_steps=...)` set to 0: both keep their first values, and each such interval adds a
    message to `notes`. Without such a run the config is returned unchanged.
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
        if value_at(begun.config, path) == value != value_at(now, path)
    }
    if notes is not None:
        notes += [
            f"'{path}' stays {_shown(value)}, as the fit(max_steps=...) that began the run left it"
            for path, value in kept.items()
        ]
    if kept:
        config = config.replace(**kept)
    return config


class Begun:
    """Settings fixed by the run in these files, if there is one; its config is read once, if needed."""

    def __init__(self, files: Files | None) -> None:
        self._files = files

    @functools.cached_property
    def config(self) -> Mapping[str, Any]:
        """Current config of the run; empty if there is no run."""
        return _begun_config(self._files)

    def turned_off(self) -> dict[str, object]:
        """Return the keys that a `fit` of this run set to 0 or null because it was too short for them."""
        if not isinstance(self._files, Storage) or not has_begun(self._files):
            return {}
        changes = [event.get("keys") for event in events(self._files, CHANGED)]
        keys = [pair for one in changes if isinstance(one, dict) for pair in one.items()]
        # The run may have begun in a version in which the key had another name.
        return {
            renamed_path(self.config, path) or path: value
            for path, value in keys
            if value is None or value == 0
        }

    def counters_at_end(self) -> Mapping[str, int]:
        """Return the counters at the end of a finished run; empty if it has not finished."""
        if not isinstance(self._files, Storage) or not has_begun(self._files):
            return {}
        try:
            ending = last_ending(self._files) or {}
        except LudusError:
            return {}
        counters: Mapping[str, int] = ending.get("counters", {})
        return counters if ending.get("event") == "finished" else {}


def _begun_config(files: Files | None) -> Mapping[str, Any]:
    if files is None or not files.exists("config.yaml"):
        return {}
    try:
        text = files.read("config.yaml", limit=strict_yaml.MAX_BYTES)
        return current(strict_yaml.parse(text, source="config.yaml"), source="config.yaml")
    except LudusError:
        return {}  # the resume itself reports the error
