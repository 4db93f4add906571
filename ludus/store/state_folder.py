"""Save a state on its own, in a directory that a script names: the content of a checkpoint without a run.

<path>/   state.json   tensors.safetensors
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from ludus.core.errors import CheckpointError, LudusError
from ludus.store.codec import Segment, decode, encode
from ludus.store.files import hash_file, sync_file, write_durably
from ludus.store.local import LocalStorage
from ludus.store.outputs import check_directory
from ludus.store.strict_json import dump_json, parse_json
from ludus.store.tensors import read_stored, write_tensors

FORMAT = 1
_MAX_STATE = 6 << 20
_STATE, _TENSORS = _FILES = ("state.json", "tensors.safetensors")


def write_state(
    path: str | Path, state: object, *, what: str, about: Mapping[str, Any] | None = None
) -> None:
    """Write a tree of state to a directory; only a directory that ludus wrote as the same kind is replaced.

    `what` names the kind, such as "a replay buffer", and is stored with `about`, which is plain data.
    """
    path = Path(os.path.abspath(path))
    tree, tensors, segments = encode(state, keep=lambda name, tensor: tensor.cpu())
    for number, segment in enumerate(segments):
        held = segment.tensors.items()
        tensors |= {f"segment {number}/{name}": tensor for name, tensor in held}

    def fill(folder: Path) -> None:
        write_tensors(folder / _TENSORS, tensors)
        sync_file(folder / _TENSORS)
        digest = hash_file(folder / _TENSORS)
        note = {"format": FORMAT, "what": what, "about": dict(about or {}), "state": tree}
        note |= {"num_segments": len(segments), "sha256": digest}
        write_durably(folder / _STATE, [dump_json(note)])

    check_directory(path, lambda place: _is_ours(place, what), what=what)
    storage = LocalStorage(path.parent)
    storage.make_root()
    before: list[str] = []

    def exchange(point: str) -> None:
        # The old directory is deleted once the new one is in place, and kept if writing fails.
        if point == "filled" and storage.exists(path.name):
            before.append(storage.set_aside(path.name))
        elif point == "renamed":
            for name in before:
                storage.remove(name)

    storage.commit(path.name, fill, step=exchange)


def read_state(path: str | Path, *, what: str) -> tuple[Any, dict[str, Any]]:
    """Return the state and `about`; raise CheckpointError if anything has changed since it was written."""
    path = Path(os.path.abspath(path))
    if not path.is_dir():
        raise CheckpointError(f"{path} is no directory; name the one that {what} was saved to")
    storage = LocalStorage(path)
    note = _read_note(storage, what)
    if storage.sha256(_TENSORS) != note.get("sha256"):
        raise CheckpointError(f"{path} has changed since it was saved")
    tensors = read_stored(storage, _TENSORS)
    count, about = note.get("num_segments"), note.get("about")
    if type(count) is not int or not 0 <= count <= len(tensors) or not isinstance(about, dict):
        raise CheckpointError(f"{path} does not say what it holds")
    segments = [Segment.of(_piece(tensors, f"segment {number}/")) for number in range(count)]
    return decode(note.get("state"), tensors, segments), about


def _piece(tensors: Mapping[str, Tensor], start: str) -> dict[str, Tensor]:
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


def _read_note(storage: LocalStorage, what: str) -> dict[str, Any]:
    place = f"{storage.place}/{_STATE}"
    note = parse_json(storage.read(_STATE, limit=_MAX_STATE), source=place)
    if not isinstance(note, dict) or note.get("format") != FORMAT or note.get("what") != what:
        raise CheckpointError(f"{storage.place} is not {what} that this version of ludus can read")
    return note


def _is_ours(path: Path, what: str) -> bool:
    """Return whether a directory holds output of this kind, and nothing else."""
    if sorted(os.listdir(path)) != sorted(_FILES):
        return False
    try:
        _read_note(LocalStorage(path), what)
    except LudusError:
        return False
    return True
