"""run.json, the note of a run: what it is, how it began, and what can rebuild it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ludus.config import registry
from ludus.core.errors import CheckpointError, RunError
from ludus.store.storage import Storage
from ludus.store.strict_json import parse_json

_TEXTS = ("kind", "name", "created", "origin", "model_origin", "group", "sweep")
_REMEDY = (
    "restore it from a backup, or start the run again, under another name, with the config.yaml"
    " in the same directory"
)


def write_note(storage: Storage, note: Mapping[str, Any]) -> None:
    """Write run.json."""
    storage.write("run.json", json.dumps(note, indent=2).encode() + b"\n")


def read_note(storage: Storage) -> dict[str, Any]:
    """Return the content of run.json."""
    place = f"{storage.place}/run.json"
    try:
        note = parse_json(storage.read("run.json", limit=1 << 20), source=place)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {_REMEDY}") from None
    if not isinstance(note, dict) or note.get("format") != 1:
        raise RunError(f"{place} is not one this ludus reads; {_REMEDY}")
    if not all(isinstance(note.get(key, ""), str) for key in _TEXTS):
        raise RunError(f"{place} does not say what this run is; {_REMEDY}")
    if not _is_list_of_text(note.get("plugins", [])):
        raise RunError(f"{place} does not say which plugins this run had; {_REMEDY}")
    if not _are_changes(note.get("changes", [])):
        raise RunError(f"{place} does not say what was changed in this run; {_REMEDY}")
    return note


def _are_changes(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(one, dict) and isinstance(one.get("key"), str) and {"old", "new"} <= one.keys()
        for one in value
    )


def _is_list_of_text(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) for item in value)


def builder(storage: Storage, note: Mapping[str, Any], *, is_for_weights: bool) -> str:
    """Return what can rebuild the trainer of a run: `config`, or only the `script` that began it.

    If a script added only callbacks, that script alone can resume the run, but the config builds the
    model and the data of its weights.
    """
    origin = note.get("origin")
    if is_for_weights:
        # Runs of older versions lack this field.
        origin = note.get("model_origin", origin)
    if origin not in ("config", "script"):
        raise RunError(
            f"{storage.place}/run.json does not say how the run was built: it is damaged; {_REMEDY}"
        )
    return str(origin)


def run_id(storage: Storage) -> str | None:
    """Return the id of the run in this directory; None if it has none."""
    return read_note(storage).get("run_id") if storage.exists("run.json") else None


def missing_plugins(note: Mapping[str, Any]) -> str:
    """Return the plugins that the run had and this process lacks, as --plugin NAME options."""
    missing = [name for name in note.get("plugins", []) if name not in registry.loaded_plugins]
    return " ".join(f"--plugin {name}" for name in missing)
