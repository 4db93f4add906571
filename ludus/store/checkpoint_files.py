"""Files of a checkpoint: list them, verify their hashes, and read the metadata without torch."""

from __future__ import annotations

import re
from typing import Any

from ludus.core.errors import CheckpointError, StorageError
from ludus.store.manifest import read_manifest
from ludus.store.note import run_id
from ludus.store.storage import Storage
from ludus.store.strict_json import parse_json

# JSON of this size takes about a second to read, whatever it contains.
MAX_STATE = 6 << 20
FILES = ("state.json", "tensors.safetensors")

_NUMBER = re.compile(r"[0-9]{10}")


def numbers(storage: Storage) -> list[int]:
    """Return the number of every checkpoint directory, oldest first, verified or not."""
    return [int(name) for name in storage.names("checkpoints") if _NUMBER.fullmatch(name)]


def verify(storage: Storage, number: int) -> dict[str, Any]:
    """Return the manifest of a checkpoint; raise CheckpointError unless its own files all match it."""
    directory = f"checkpoints/{number:010d}"
    manifest = own_manifest(storage, number)
    found = set(storage.names(directory)) - {"manifest.json"}
    if found != set(manifest["files"]) or found != set(FILES):
        raise CheckpointError(
            f"{directory} holds {sorted(found)[:5]}, which is not what it was saved with"
        )
    for name, about in manifest["files"].items():
        if storage.size(f"{directory}/{name}") != about["bytes"]:
            raise CheckpointError(f"{directory}/{name} has not the size it was saved with")
        check_hash(storage, f"{directory}/{name}", about["sha256"])
    return manifest


def own_manifest(storage: Storage, number: int) -> dict[str, Any]:
    """Return the manifest of a checkpoint; raise CheckpointError if it belongs to another run."""
    manifest = read_manifest(storage, number)
    if manifest["run_id"] != run_id(storage):
        raise CheckpointError(
            f"checkpoints/{number:010d} belongs to another run than run.json does"
        )
    return manifest


def check_hash(storage: Storage, name: str, digest: str | None) -> None:
    """Raise CheckpointError unless a file has this hash."""
    if storage.sha256(name) != digest:
        raise CheckpointError(f"{storage.place}/{name} has changed since it was saved")


def peek(storage: Storage) -> dict[str, Any]:
    """Return the metadata of the newest checkpoint, its counters, and why it was to stop, without tensors."""
    for number in reversed(numbers(storage)):
        try:
            manifest = own_manifest(storage, number)
            name = f"checkpoints/{number:010d}/state.json"
            check_hash(storage, name, manifest["files"]["state.json"]["sha256"])
            tree = parse_json(storage.read(name, limit=MAX_STATE), source=name)
            items = tree["run"]["counters"].items()
            counters = {key: value for key, value in items if type(value) is int and value}
            return {**manifest, "counters": counters, "stop_reason": tree["run"].get("stop_reason")}
        except (CheckpointError, StorageError, KeyError, TypeError, AttributeError):
            continue
    return {}
