"""Model directories: the weights alone, immutable, with a note of what they are.

models/<name>/   weights.safetensors   model.json
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ludus.core.errors import CheckpointError
from ludus.run import codec
from ludus.run.checkpoint import passed, sync_file
from ludus.run.storage import Storage, hash_file, write_durably
from ludus.run.tensors import read_tensors, write_tensors

_FILES = ("weights.safetensors", "model.json")


def write_model(
    storage: Storage, name: str, weights: Mapping[str, Tensor], about: Mapping[str, Any]
) -> None:
    """Write the weights under this name; what stood there before is replaced."""

    def fill(folder: Path) -> None:
        path = folder / _FILES[0]
        write_tensors(path, weights)
        sync_file(path)
        note = {**about, "sha256": hash_file(path)}
        write_durably(folder / _FILES[1], iter([codec.dump_json(note)]))

    storage.make("models")
    if storage.exists(name):
        storage.remove(name)
    storage.commit(name, fill, step=lambda point: passed(f"model {point}"))


def read_model(storage: Storage, name: str) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the weights and the note; raise CheckpointError if they are not as written."""
    about = codec.parse_json(storage.read(f"{name}/{_FILES[1]}"), source=f"{name}/{_FILES[1]}")
    path = storage.path(f"{name}/{_FILES[0]}")
    if not isinstance(about, dict) or hash_file(path) != about.get("sha256"):
        raise CheckpointError(f"{storage.root / name} has changed since it was saved")
    return read_tensors(path), about


def publish(storage: Storage, source: str, name: str) -> None:
    """Make `name` hold the same model as `source`, sharing its bytes on disk."""
    here = storage.path(f"{name}/{_FILES[1]}")
    if here.exists() and here.read_bytes() == storage.read(f"{source}/{_FILES[1]}"):
        return

    def fill(folder: Path) -> None:
        for file in _FILES:
            os.link(storage.path(f"{source}/{file}"), folder / file)

    if storage.exists(name):
        storage.remove(name)
    storage.commit(name, fill, step=lambda point: passed(f"publish {point}"))
