"""Model directories: the weights alone, immutable, with a note that describes them.

models/<name>/   weights.safetensors   model.json
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ludus.core.errors import CheckpointError, StorageError
from ludus.store import checkpoint
from ludus.store.files import hash_file, sync_file, write_durably
from ludus.store.storage import Storage
from ludus.store.strict_json import dump_json, parse_json
from ludus.store.tensors import read_stored, write_tensors

MAX_NOTE = 1 << 20
_FILES = ("weights.safetensors", "model.json")
_REMEDY = "restore its directory from a backup, or take another model"


def write_model(
    storage: Storage, name: str, weights: Mapping[str, Tensor], about: Mapping[str, Any]
) -> None:
    """Write the weights under this name, replacing an earlier model."""

    def fill(folder: Path) -> None:
        path = folder / _FILES[0]
        write_tensors(path, weights)
        sync_file(path)
        note = {**about, "sha256": hash_file(path)}
        write_durably(folder / _FILES[1], [dump_json(note)])

    if storage.exists(name):
        storage.remove(name)
    storage.commit(name, fill, step=lambda point: checkpoint.passed(f"model {point}"))


def read_model(storage: Storage, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights and the note; raise CheckpointError if they are not as written."""
    weights, note = (f"{name}/{file}" for file in _FILES)
    data = storage.read(note, limit=MAX_NOTE)
    try:
        about = parse_json(data, source=f"{storage.place}/{note}")
    except CheckpointError as error:
        raise CheckpointError(f"{error}; {_REMEDY}") from None
    if not isinstance(about, dict) or storage.sha256(weights) != about.get("sha256"):
        raise CheckpointError(
            f"{storage.place}/{name} has changed since it was saved: {_FILES[0]} is not the file that"
            f" {_FILES[1]} is of; {_REMEDY}"
        )
    return read_stored(storage, weights), about


def publish(storage: Storage, source: str, name: str) -> None:
    """Make `name` a copy of the model `source`; they share no bytes on disk."""
    note = storage.read(f"{source}/{_FILES[1]}", limit=MAX_NOTE)
    if _is_same(storage, name, note):
        return

    def fill(folder: Path) -> None:
        for file in _FILES:
            with storage.local(f"{source}/{file}") as path:
                shutil.copyfile(path, folder / file)
            sync_file(folder / file)

    if storage.exists(name):
        storage.remove(name)
    storage.commit(name, fill, step=lambda point: checkpoint.passed(f"publish {point}"))


def _is_same(storage: Storage, name: str, note: bytes) -> bool:
    """Return whether an intact model with exactly this note is stored under the name."""
    try:
        read_model(storage, name)
        return storage.read(f"{name}/{_FILES[1]}", limit=MAX_NOTE) == note
    except (CheckpointError, StorageError):
        return False


def mend(storage: Storage, name: str, copy: str) -> bool:
    """Return whether the model is on disk; if its directory is gone, restore it from its published copy."""
    if storage.exists(f"{name}/{_FILES[1]}"):
        return True
    try:
        is_copy = read_model(storage, copy)[1].get("model") == name
    except (CheckpointError, StorageError):
        return False
    if is_copy:
        publish(storage, copy, name)
    return is_copy
