"""Segments on disk: append-only data named by the hash of its content, every file stored twice.

All checkpoints share the segments that did not change between them, so one damaged file would damage
them all. Each segment has a copy, written with it, from which a resume restores it.

    segments/<sha256>.safetensors   segments-copy/<sha256>.safetensors
"""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from torch import Tensor

from ludus.core.errors import CheckpointError, StorageError
from ludus.store.codec import Segment
from ludus.store.storage import Storage
from ludus.store.tensors import read_stored, write_tensors

_FOLDERS = ("segments", "segments-copy")
_OURS = re.compile(r"[0-9a-f]{64}\.safetensors")


def write_segments(storage: Storage, segments: Sequence[Segment]) -> list[str]:
    """Store each segment under the hash of its file, unless it exists, and return the names."""
    names = []
    known: set[str] = set()
    for segment in segments:
        name = segment.name
        if name is None or (name not in known and not storage.exists(f"segments/{name}")):
            name = _write(storage, segment.tensors)
            segment.settle(name, _loader(storage, *_pair(name)))
        known.add(name)
        names.append(name)
    return names


def _write(storage: Storage, tensors: Mapping[str, Tensor]) -> str:
    name = storage.add(_FOLDERS[0], ".safetensors", lambda path: write_tensors(path, tensors))
    storage.copy(*_pair(name))
    return name


def _pair(name: str) -> tuple[str, str]:
    return f"{_FOLDERS[0]}/{name}", f"{_FOLDERS[1]}/{name}"


def _loader(storage: Storage, *paths: str) -> Callable[[], dict[str, Tensor]]:
    """Return a function that reads the first readable one of these files."""

    def load() -> dict[str, Tensor]:
        for path in paths[:-1]:
            with contextlib.suppress(CheckpointError, StorageError):
                return read_stored(storage, path)
        return read_stored(storage, paths[-1])

    return load


def read_segments(storage: Storage, names: Sequence[str]) -> list[Segment]:
    """Return the stored segments; raise CheckpointError if one and its copy are both damaged or missing."""
    sound: dict[str, list[str]] = {}
    for name in set(names):
        # The copy is checked only if it is needed.
        found = (path for path in _pair(name) if _is_sound(storage, path))
        sound[name] = list(itertools.islice(found, 1))
        if not sound[name]:
            raise CheckpointError(f"segments/{name} has changed since it was saved, or was lost")
    return [Segment(None, name, _loader(storage, *sound[name])) for name in names]


def mend(storage: Storage, names: Iterable[str], *, tell: Callable[[str], None]) -> None:
    """Restore whichever of a segment and its copy is damaged or missing from the intact one."""
    for name in sorted(set(names)):
        sound = [path for path in _pair(name) if _is_sound(storage, path)]
        for path in sorted({*_pair(name)} - {*sound}) if sound else ():
            # Runs of older versions have no copies; these are created silently.
            if path.startswith("segments/") or storage.exists(path):
                tell(f"{path} was damaged and was restored from its copy")
            storage.copy(sound[0], path)


def _is_sound(storage: Storage, path: str) -> bool:
    try:
        return f"{storage.sha256(path)}.safetensors" == path.rpartition("/")[2]
    except StorageError:
        return False


def collect_segments(storage: Storage, needed: set[str]) -> None:
    """Delete all other segments, with their copies."""
    for folder in _FOLDERS:
        for name in storage.names(folder):
            if _OURS.fullmatch(name) and name not in needed:
                storage.remove(f"{folder}/{name}")
