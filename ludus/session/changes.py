"""Changes of the config of a run that is resumed: found, and recorded with the place where they happened."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ludus.config import strict_yaml
from ludus.config.base import TrainerConfig, current, key_paths
from ludus.config.changeable import changeable_key
from ludus.config.overrides import MISSING, is_length, value_at
from ludus.core.errors import RunError
from ludus.store import note
from ludus.store.checkpoint import Saved
from ludus.store.directory import deciding, events, value_of
from ludus.store.storage import Storage
from ludus.store.strict_json import one_line

Tell = Callable[..., None]
CHANGED = "config_changed"
"""The event that a resumed run goes on with another value of a key."""
HISTORY = "changes"
"""Field of run.json: every change since the config that the run began with."""


class Changes(NamedTuple):
    """The keys that a resumed run changes in its config."""

    values: Mapping[str, tuple[Any, Any]]
    """The old and the new value of each key."""
    lengths: Sequence[str]
    """Those of the keys that are lengths."""


class ChangedKeys(NamedTuple):
    """The keys that differ between two configs of a run."""

    lengths: list[str]
    declared: list[str]
    """Those that their section lets a resumed run change."""
    others: list[str]
    """Those that it may not."""


def changed_keys(old: TrainerConfig, new: TrainerConfig) -> ChangedKeys:
    """Return the keys that differ: lengths, others that a resume may change, and those it may not.

    Timeouts do not affect the result, so they may change silently.
    """
    before, after = deciding(old), deciding(new)
    lengths: list[str] = []
    declared: dict[str, None] = {}
    others: list[str] = []
    for path in sorted({*key_paths(before), *key_paths(after)}):
        one, two = value_at(before, path), value_at(after, path)
        if is_length(path) and type(one) is int and type(two) is int and two < one:
            raise RunError(f"'{path}' of a run may be raised, not lowered: it was {one}, not {two}")
        if one == two or isinstance(one, dict) or isinstance(two, dict):
            continue
        if path.endswith("timeout_seconds"):
            continue
        if not is_length(path) and (key := changeable_key(new, path) or changeable_key(old, path)):
            declared[key] = None
            continue
        (lengths if is_length(path) else others).append(path)
    return ChangedKeys(lengths, list(declared), others)


def edited_keys(storage: Storage, new: TrainerConfig, keys: Sequence[str]) -> list[str]:
    """Return those of these changed keys that were changed in config.yaml by hand.

    A change that is asked for is noted in run.json before config.yaml has it.
    """
    if not keys:
        return []
    noted = [(one["key"], one["new"]) for one in note.read_note(storage).get(HISTORY, [])]
    text = storage.read("config.yaml", limit=strict_yaml.MAX_BYTES)
    there = current(strict_yaml.parse(text, source="config.yaml"), source="config.yaml")
    return [
        key
        for key in keys
        if (value := value_in(new, key)) == value_at(there, key) and (key, value) not in noted
    ]


def value_in(config: TrainerConfig, path: str) -> Any:
    value = value_of(config, path)
    return None if value is MISSING else value


def note_changes(storage: Storage, changes: Changes, saved: Saved | None, *, tell: Tell) -> None:
    """Record each change of the config in run.json and in the events: old, new, and where it happened.

    A run that was killed before its next checkpoint changes again, at the same place: once is enough. If it
    does not, what it had changed is forgotten, because nothing was trained with it.
    """
    about = note.read_note(storage)
    history = about.get(HISTORY, [])
    run = {} if saved is None else saved.state["run"]
    where = {
        "boundary": 0 if saved is None else saved.number,
        "counters": {name: value for name, value in run.get("counters", {}).items() if value},
    }
    lines = [
        {"key": key, "old": old, "new": new, **where} for key, (old, new) in changes.values.items()
    ]
    fresh = [line for line in lines if line not in history]
    told = list(events(storage, CHANGED))
    # A kill may come between the events and run.json.
    for line in (one for one in fresh if not any(one.items() <= event.items() for event in told)):
        text = f"{line['key']} is {one_line(line['new'])}, which was {one_line(line['old'])}"
        tell(CHANGED, reason=text, **line)
    kept = [one for one in history if one in lines or one.get("boundary", 0) < where["boundary"]]
    if fresh or kept != history:
        note.write_note(storage, {**about, HISTORY: [*kept, *fresh]})
