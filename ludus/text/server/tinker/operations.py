"""Operations: the requests that change a training run, each durable on disk before it is answered.

ops/<seq_id>.json   one request each, until a snapshot holds what it did
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import orjson

from ludus.core.errors import StorageError
from ludus.store.storage import Storage
from ludus.text.server.tinker.outcomes import Failure

Kind = Literal[
    "forward",
    "forward_backward",
    "optim_step",
    "save_weights",
    "save_weights_for_sampler",
    "load_weights",
]


@dataclass(frozen=True)
class Operation:
    """One request to a training run; `seq_id` counts them from 1, without gaps."""

    seq_id: int
    kind: Kind
    body: Mapping[str, Any]
    """What to do, as plain JSON values."""
    failure: Failure | None = None
    """Why it is not done: the request was wrong, or the server failed at it."""

    def failed(self, failure: Failure) -> Operation:
        """Return it as one that is never done."""
        return replace(self, failure=failure)

    def digest(self) -> str:
        """Return a hash of what was asked."""
        whole = {"kind": self.kind, "body": self.body}
        return hashlib.sha256(orjson.dumps(whole, option=orjson.OPT_SORT_KEYS)).hexdigest()

    def to_bytes(self) -> bytes:
        """Return the content of its file."""
        failure = None if self.failure is None else self.failure.to_json()
        return orjson.dumps({"kind": self.kind, "failure": failure, "body": self.body})

    @classmethod
    def from_bytes(cls, seq_id: int, data: bytes) -> Operation:
        """Return the operation that `to_bytes` wrote."""
        try:
            found = orjson.loads(data)
            failure = found["failure"]
            read = None if failure is None else Failure(failure["error"], failure["category"])
            return cls(seq_id, found["kind"], found["body"], read)
        except (ValueError, KeyError, TypeError):
            raise StorageError(
                f"ops/{seq_id:010d}.json is damaged; restore it from a backup"
            ) from None


class OperationLog:
    """The operations of a run that its last snapshot does not hold."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def write(self, operation: Operation) -> int:
        """Make an operation durable, and return its size in bytes."""
        data = operation.to_bytes()
        self._storage.write(_name(operation.seq_id), data)
        return len(data)

    def read(self) -> list[Operation]:
        """Return all operations, in order."""
        found = []
        for name in self._storage.names("ops"):
            number, dot, ending = name.partition(".")
            # What a killed writer left behind has another ending.
            if number.isdigit() and dot and ending == "json":
                data = self._storage.read(f"ops/{name}")
                found.append(Operation.from_bytes(int(number), data))
        return found

    def forget(self, *, up_to: int) -> None:
        """Delete the operations that a snapshot holds."""
        for name in self._storage.names("ops"):
            number = name.partition(".")[0]
            if number.isdigit() and int(number) <= up_to:
                self._storage.remove(f"ops/{name}")


def _name(seq_id: int) -> str:
    return f"ops/{seq_id:010d}.json"
