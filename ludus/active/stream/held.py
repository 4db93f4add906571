"""The state of an edge or a datacenter on the disk: replaced whole, and believed only if it is unchanged.

state.json                   the state, and the hash of the tensors it names
state_<number>.safetensors   written before it; a kill leaves the old pair or the new one
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from safetensors.torch import save
from torch import Tensor

from ludus.core import states
from ludus.core.errors import CheckpointError
from ludus.store.codec import decode, encode
from ludus.store.local import LocalStorage
from ludus.store.strict_json import dump_json, parse_json
from ludus.store.tensors import read_stored

FORMAT = 1
_STATE = "state.json"
_MAX_STATE = 1 << 24
_TENSORS = re.compile(r"state_[0-9]+\.safetensors")


class Held:
    """What a folder remembers of whoever was at work in it."""

    def __init__(self, storage: LocalStorage) -> None:
        self._storage, self._number = storage, 0

    def write(self, state: Mapping[str, Any]) -> None:
        """Put a state in the place of the last one; after this it survives a kill."""
        tree, tensors, _ = encode(dict(state), keep=_copied)
        self._number += 1
        name, data = f"state_{self._number}.safetensors", save(tensors)
        self._storage.write(name, data)
        note = {"format": FORMAT, "number": self._number, "state": tree}
        note["sha256"] = hashlib.sha256(data).hexdigest()
        self._storage.write(_STATE, dump_json({**note, "seal": _seal(note)}))
        # All others, for a kill may have left one behind.
        for other in self._storage.names(""):
            if _TENSORS.fullmatch(other) and other != name:
                self._storage.remove(other)

    def read(self) -> dict[str, Any] | None:
        """Return the last state, None where there is none; raise CheckpointError if it has changed."""
        if not self._storage.exists(_STATE):
            return None
        place = f"{self._storage.place}/{_STATE}"
        note = parse_json(self._storage.read(_STATE, limit=_MAX_STATE), source=place)
        if not isinstance(note, dict) or note.get("format") != FORMAT:
            raise CheckpointError(f"{place} is of another version of ludus; give it another name")
        seal = note.pop("seal", None)
        number = note.get("number")
        name = f"state_{number}.safetensors"
        if seal != _seal(note) or self._storage.sha256(name) != note["sha256"]:
            raise CheckpointError(
                f"{place} or {name} has changed since it was written; restore the folder, or give it"
                " another name"
            )
        self._number = states.whole(note, "number")
        state = decode(note["state"], read_stored(self._storage, name), [])
        return states.mapping({"state": state}, "state")


def _copied(path: str, tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().contiguous().clone()


def _seal(note: Mapping[str, Any]) -> str:
    return hashlib.sha256(dump_json(note)).hexdigest()
