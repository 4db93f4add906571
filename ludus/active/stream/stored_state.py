"""The state of an edge or datacenter on disk: replaced atomically, and verified by its hash.

state.json                   whose folder it is, the state, and the hash of the tensors it names
state_<number>.safetensors   written before it; a kill leaves the old pair or the new one

The folder is claimed before anything else is written there, so files in an unclaimed folder are foreign.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from safetensors.torch import save
from torch import Tensor

from ludus.core import states
from ludus.core.errors import CheckpointError, RunError
from ludus.store.codec import decode, encode
from ludus.store.local import LocalStorage
from ludus.store.strict_json import dump_json, parse_json
from ludus.store.tensors import read_stored

FORMAT = 2
_STATE = "state.json"
_MAX_STATE = 1 << 24
_TENSORS = re.compile(r"state_[0-9]+\.safetensors")
# The files before a folder is claimed: its lock, and an interrupted claim.
_BEFORE_CLAIM = re.compile(r"LOCK|state\.json\.tmp-[0-9]+")
_MOST_NAMED = 3


class StoredState:
    """The saved state of a folder and its owner."""

    def __init__(self, storage: LocalStorage, owner: str) -> None:
        self._storage, self._owner, self._number = storage, owner, 0

    def write(self, state: Mapping[str, Any]) -> None:
        """Replace the last state; after this it survives a kill."""
        tree, tensors, _ = encode(dict(state), keep=_copied)
        self._number += 1
        name, data = f"state_{self._number}.safetensors", save(tensors)
        self._storage.write(name, data)
        self._put(tree, hashlib.sha256(data).hexdigest())
        # All others, as a kill may have left one behind.
        for other in self._storage.names(""):
            if _TENSORS.fullmatch(other) and other != name:
                self._storage.remove(other)

    def _put(self, tree: object, sha256: str | None) -> None:
        note = {"format": FORMAT, "owner": self._owner, "number": self._number, "state": tree}
        note["sha256"] = sha256
        self._storage.write(_STATE, dump_json({**note, "seal": _seal(note)}))

    def _claim(self) -> None:
        """Claim an unused folder for this owner; refuse one that holds files."""
        place, names = self._storage.place, self._storage.names("")
        if "run.json" in names:
            raise RunError(
                f"{place} is the folder of a run, and would be written over; give the {self._owner}"
                " another name"
            )
        if others := [name for name in names if not _BEFORE_CLAIM.fullmatch(name)]:
            more = ", ..." if len(others) > _MOST_NAMED else ""
            raise RunError(
                f"{place} holds files that are no {self._owner}'s ({', '.join(others[:_MOST_NAMED])}"
                f"{more}); give the {self._owner} another name, or move them away"
            )
        self._put(None, None)

    def read(self) -> dict[str, Any] | None:
        """Return the last state; None if there is none, and the folder is claimed for this owner.

        Raise CheckpointError if the state was altered, RunError if the folder has another owner.
        """
        if not self._storage.exists(_STATE):
            self._claim()
            return None
        place = f"{self._storage.place}/{_STATE}"
        note = parse_json(self._storage.read(_STATE, limit=_MAX_STATE), source=place)
        if not isinstance(note, dict) or note.get("format") != FORMAT:
            raise CheckpointError(f"{place} is of another version of ludus; give it another name")
        if note.get("owner", self._owner) != self._owner:
            raise RunError(
                f"{self._storage.place} was begun by the {note['owner']}; give the {self._owner} another"
                " name"
            )
        seal = note.pop("seal", None)
        name = f"state_{note.get('number')}.safetensors"
        is_whole, is_claim = seal == _seal(note), note.get("state", 0) is None
        if is_whole and is_claim:
            return None
        if not is_whole or self._storage.sha256(name) != note["sha256"]:
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
