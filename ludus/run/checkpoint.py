"""Checkpoints: written whole or not at all, verified before they are believed, never by running code.

    checkpoints/<number>/   state.json   tensors.safetensors   manifest.json (last: sizes and hashes)

The number counts the boundaries passed. There is no pointer to the latest one: the newest directory
that verifies is the one.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ludus.core.errors import CheckpointError, StorageError
from ludus.run import codec
from ludus.run.storage import Storage, hash_file, write_durably
from ludus.run.tensors import read_tensors, write_tensors

FORMAT = 1
MAX_STATE = 1 << 28
_NUMBER = re.compile(r"[0-9]{10}")
_FILES = ("state.json", "tensors.safetensors")


def passed(point: str) -> None:
    """Mark a point of the writer by name; the fault tests put a kill here."""


@dataclass
class Saved:
    """A state taken at one boundary, ready to be written or just read."""

    number: int
    state: dict[str, Any]
    manifest: dict[str, Any] = field(default_factory=dict)


def write(
    storage: Storage,
    number: int,
    taken: tuple[Any, dict[str, Tensor], list[codec.Segment]],
    about: Mapping[str, Any],
) -> None:
    """Write one checkpoint: after this returns, it is on disk, whole and verified."""
    tree, tensors, segments = taken
    names = [write_segment(storage, segment) for segment in segments]
    passed("segments")

    def fill(folder: Path) -> None:
        state_path, tensors_path = (folder / name for name in _FILES)
        size, digest = write_durably(state_path, iter([codec.dump_json(tree)]))
        passed("state")
        write_tensors(tensors_path, tensors)
        sync_file(tensors_path)
        passed("tensors")
        files = {
            state_path.name: {"bytes": size, "sha256": digest},
            tensors_path.name: _describe(tensors_path),
        }
        # The log must be durable up to the offset that this manifest is about to promise.
        storage.sync_appends()
        manifest = {"format": FORMAT, "number": number, "files": files, "segments": names, **about}
        write_durably(folder / "manifest.json", iter([codec.dump_json(manifest)]))
        passed("manifest")

    storage.make("checkpoints")
    directory = f"checkpoints/{number:010d}"
    storage.commit(directory, fill, step=passed)
    verify(storage, number)
    passed("verified")


def write_segment(storage: Storage, segment: codec.Segment) -> str:
    """Store a segment under the hash of its content, unless it is there, and return its name."""
    if segment.name is None:
        digest = hashlib.sha256()
        for name, tensor in sorted(segment.tensors.items()):
            header = f"{name}:{tensor.dtype}:{tuple(tensor.shape)};"
            digest.update(header.encode())
            digest.update(_bytes(tensor))
        segment.name = f"{digest.hexdigest()}.safetensors"
    storage.make("segments")
    path = storage.path(f"segments/{segment.name}")
    if not path.exists():
        temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        write_tensors(temporary, segment.tensors)
        sync_file(temporary)
        temporary.rename(path)
    return segment.name


def verify(storage: Storage, number: int) -> dict[str, Any]:
    """Return the manifest of a checkpoint whose every file is as it was written."""
    directory = f"checkpoints/{number:010d}"
    data = storage.read(f"{directory}/manifest.json", limit=MAX_STATE)
    manifest = codec.parse_json(data, source=f"{directory}/manifest.json")
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), dict):
        raise CheckpointError(f"{directory}: its manifest is not one")
    if manifest.get("format") != FORMAT:
        raise CheckpointError(
            f"{directory} has format {manifest.get('format')}, this ludus reads {FORMAT}; update ludus"
        )
    if manifest.get("number") != number:
        raise CheckpointError(f"{directory} says it is number {manifest.get('number')}")
    found = set(storage.names(directory)) - {"manifest.json"}
    if found != set(manifest["files"]) or found != set(_FILES):
        raise CheckpointError(
            f"{directory} holds {sorted(found)}, which is not what it was saved with"
        )
    for name, about in manifest["files"].items():
        if not isinstance(about, dict) or storage.size(f"{directory}/{name}") != about.get("bytes"):
            raise CheckpointError(f"{directory}/{name} has not the size it was saved with")
        if storage.sha256(f"{directory}/{name}") != about.get("sha256"):
            raise CheckpointError(f"{directory}/{name} has changed since it was saved")
    for name in manifest.get("segments", []):
        if not storage.exists(f"segments/{name}"):
            raise CheckpointError(f"{directory} needs segments/{name}, which is gone")
    return manifest


def read(storage: Storage, number: int) -> Saved:
    """Verify one checkpoint and return its state."""
    manifest = verify(storage, number)
    directory = f"checkpoints/{number:010d}"
    data = storage.read(f"{directory}/state.json", limit=MAX_STATE)
    tree = codec.parse_json(data, source=f"{directory}/state.json")
    tensors = read_tensors(storage.path(f"{directory}/tensors.safetensors"))
    segments = [_stored_segment(storage, name) for name in manifest.get("segments", [])]
    state = codec.decode(tree, tensors, segments)
    if not isinstance(state, dict):
        raise CheckpointError(f"{directory}/state.json does not hold a state")
    return Saved(number, state, manifest)


def _stored_segment(storage: Storage, name: str) -> codec.Segment:
    return codec.Segment(None, name, lambda: read_tensors(storage.path(f"segments/{name}")))


def numbers(storage: Storage) -> list[int]:
    """Return the number of every checkpoint directory, oldest first, verified or not."""
    return [int(name) for name in storage.names("checkpoints") if _NUMBER.fullmatch(name)]


def read_newest(storage: Storage, *, damaged: Callable[[str], None]) -> Saved | None:
    """Return the newest checkpoint that verifies, or None where there never was one.

    Each damaged one is told to `damaged`; if all are, that is an error, never a fresh start.
    """
    found = numbers(storage)
    for number in reversed(found):
        try:
            return read(storage, number)
        except (CheckpointError, StorageError) as error:
            damaged(f"checkpoint {number} is damaged and was skipped: {error}")
    if found:
        raise CheckpointError(
            f"none of the {len(found)} checkpoints in {storage.root} can be trusted; restore the"
            " directory from a backup, or start a new run under another name"
        )
    return None


def collect(storage: Storage, *, keep_last: int) -> None:
    """Delete old checkpoints, and the segments and best models that no kept one names."""
    found = numbers(storage)
    kept = found[-keep_last:]
    manifests = []
    for number in kept:
        path = f"checkpoints/{number:010d}/manifest.json"
        manifests.append(codec.parse_json(storage.read(path), source=path))
    for number in found[:-keep_last]:
        passed("collecting")
        storage.remove(f"checkpoints/{number:010d}")
    segments = {name for manifest in manifests for name in manifest.get("segments", [])}
    models = {name for manifest in manifests for name in manifest.get("models", [])}
    for name in storage.names("segments"):
        if name not in segments and ".tmp-" not in name:
            storage.remove(f"segments/{name}")
    # A best model newer than the newest checkpoint is still to be named by the next one.
    newest = f"best-{kept[-1]:010d}" if kept else ""
    for name in storage.names("models"):
        if name.startswith("best-") and f"models/{name}" not in models and name < newest:
            storage.remove(f"models/{name}")
    passed("collected")


def sync_file(path: Path) -> None:
    """Make one file durable."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def _describe(path: Path) -> dict[str, Any]:
    return {"bytes": path.stat().st_size, "sha256": hash_file(path)}


def digest_of(state: Mapping[str, Any], *, leave_out: Sequence[str] = ()) -> str:
    """Return one hash of a whole state: equal states, equal hashes, on any machine."""
    tree, tensors, segments = codec.encode({k: v for k, v in state.items() if k not in leave_out})
    digest = hashlib.sha256(codec.dump_json(tree))
    for segment in segments:
        for name, tensor in sorted(segment.tensors.items()):
            tensors[f"segment/{segment.name}/{name}"] = tensor
    for name, tensor in sorted(tensors.items()):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(_bytes(tensor))
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> Any:
    return memoryview(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy())  # type: ignore[arg-type]
