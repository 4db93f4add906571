"""Read the config of a run from run.json: the one it began with, and what each resume changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ludus.config import strict_yaml
from ludus.core.errors import LudusError
from ludus.store.note import read_note
from ludus.store.storage import Storage


class ConfigStage(NamedTuple):
    """A config that a run was trained with, and where it began."""

    config: Mapping[str, Any]
    boundary: int = 0
    counters: Mapping[str, Any] = {}
    """The counters there; empty at the beginning of the run."""


def config_stages(note: Mapping[str, Any]) -> Sequence[ConfigStage]:
    """Return the configs that a run was trained with, without name and settings, the newest last.

    Anyone can edit config.yaml, so this goes by run.json alone; a run of an old version has an empty config.
    """
    stages = [ConfigStage(_mapping(note.get("config")))]
    changes = note.get("changes")
    for change in changes if isinstance(changes, list) else ():
        number = change.get("boundary")
        boundary = number if type(number) is int else stages[-1].boundary + 1
        # A run whose newest checkpoints are gone goes on before what it had changed since.
        while len(stages) > 1 and stages[-1].boundary > boundary:
            stages.pop()
        config = _with_value(stages[-1].config, change["key"].split("."), change["new"])
        if stages[-1].boundary == boundary:
            stages.pop()
        stages.append(ConfigStage(config, boundary, _mapping(change.get("counters"))))
    return stages


def current_config(storage: Storage) -> dict[str, Any]:
    """Return the config that a run has now, with its name and settings; empty if nothing can be read.

    The name and the settings are those of config.yaml, as is all of a run of an old version.
    """
    found: dict[str, Any] = {}
    try:
        text = storage.read("config.yaml", limit=strict_yaml.MAX_BYTES)
        found |= _mapping(strict_yaml.parse(text, source=f"{storage.place}/config.yaml"))
    except (LudusError, OSError):
        # A list goes on with what run.json says; a command that needs the file reports what is wrong.
        pass
    try:
        return {**found, **config_stages(read_note(storage))[-1].config}
    except (LudusError, OSError):
        return found


def _with_value(data: Mapping[str, Any], path: Sequence[str], value: object) -> dict[str, Any]:
    """Return nested data with another value at a path."""
    name, *rest = path
    return {**data, name: _with_value(_mapping(data.get(name)), rest, value) if rest else value}


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
