"""The rollouts of a run: kept in files, an iteration each, and read back after a kill."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from ludus.core import states
from ludus.core.errors import RunError
from ludus.core.services import Files
from ludus.text.nested.array_dict import NestedArrayDict

FOLDER = "rollouts"
_LIMIT = 1 << 34


class RolloutStore:
    """Rollouts by name, such as train-3; a part: its state names the files and their contents.

    Without a directory they are kept in memory.
    """

    def __init__(self) -> None:
        self._files: Files | None = None
        self._digests: dict[str, str] = {}
        self._held: dict[str, bytes] = {}
        self._newest: tuple[str, NestedArrayDict] | None = None

    derived = ("_newest", "_held", "_files")

    def open(self, files: Files | None) -> None:
        """Keep rollouts in these files."""
        self._files = files

    def put(self, name: str, rollouts: NestedArrayDict) -> None:
        """Keep rollouts under a name; they are durable when this returns."""
        data = rollouts.to_bytes()
        if self._files is None:
            self._held[name] = data
        else:
            self._files.write(_file(name), data)
        self._digests[name] = hashlib.sha256(data).hexdigest()
        self._newest = (name, rollouts)

    def get(self, name: str) -> NestedArrayDict:
        """Return the rollouts of a name; raise RunError if their file was changed."""
        if self._newest is not None and self._newest[0] == name:
            return self._newest[1]
        if name not in self._digests:
            raise RunError(
                f"the run has no rollouts '{name}'; resume from a checkpoint before them"
            )
        if self._files is None:
            data = self._held[name]
        else:
            data = self._files.read(_file(name), limit=_LIMIT)
        if hashlib.sha256(data).hexdigest() != self._digests[name]:
            raise RunError(
                f"{_file(name)} is not the file that this run wrote; put that back, or resume from a"
                " checkpoint before it"
            )
        rollouts = NestedArrayDict.from_bytes(data)
        self._newest = (name, rollouts)
        return rollouts

    @property
    def names(self) -> list[str]:
        """The names, in the order in which they were kept."""
        return list(self._digests)

    def state_dict(self) -> dict[str, Any]:
        """Return the name and the digest of each."""
        return {"digests": dict(self._digests)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore them; the files are read when they are needed."""
        states.check_keys(state, "digests")
        digests = state["digests"]
        if not isinstance(digests, Mapping):
            raise states.StateError("digests", "is no mapping")
        self._digests = {str(name): states.text(digests, name) for name in digests}
        self._newest = None


def _file(name: str) -> str:
    return f"{FOLDER}/{name}.safetensors"
