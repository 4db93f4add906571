"""Storage protocol: named files of a run. Each kind of storage is in its own file in this package."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, runtime_checkable

from ludus.core.errors import StorageError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def is_safe_name(name: str) -> bool:
    """Return whether a relative name stays below the root."""
    return all(_NAME.fullmatch(part) for part in name.split("/"))


def check_name(name: str) -> None:
    """Raise StorageError for a name that could escape the root."""
    if not is_safe_name(name):
        shown = name if len(name) <= 80 else name[:77] + "..."
        raise StorageError(
            f"{shown!r} is not a safe file name; use letters, digits, '.', '_' and '-'"
        )


def is_log_name(name: str) -> bool:
    """Return whether an append-only file may have this name, so that a resume may truncate it."""
    folder = name.split("/")[0] if "/" in name else ""
    if not is_safe_name(name) or folder in ("checkpoints", "models", "segments"):
        return False
    return folder == "events" or name.endswith((".jsonl", ".csv"))


class Growing(Protocol):
    """An append-only file; its content can be made durable and, on resume, truncated."""

    offset: int
    """Number of bytes written."""
    backlog: bytes
    """Bytes held back by a full disk, to be written before anything else."""

    @property
    def sha256(self) -> str:
        """Hash of all bytes up to the offset."""

    def write(self, data: bytes) -> None:
        """Append the bytes in one piece, or hold them back if there is no space."""

    def add_durably(self, data: bytes) -> None:
        """Append the bytes and make them durable; if that fails, raise and leave the file unchanged."""

    def flush(self) -> bool:
        """Try to write the backlog; return whether it is empty."""

    def sync(self) -> None:
        """Make everything written so far durable."""

    def close(self) -> None: ...


class Lock(Protocol):
    """Held by the one process that writes."""

    def check(self) -> None:
        """Raise RunTaken if it is no longer held."""


@runtime_checkable
class Storage(Protocol):
    """Files of one run, by safe relative names; every failure is a StorageError.

    A file is complete or absent, and so is a committed directory. What has been written, added, copied or
    committed is durable when the call returns.

    `Storage(place)` opens the storage at a directory or a URL, creating the directory if necessary;
    `ludus.open_storage(place)` creates nothing.
    """

    def __new__(cls, *place: object, **options: object) -> Storage:
        """Return the kind of storage for this location; a subclass is constructed as itself."""
        if cls is not Storage:
            return super().__new__(cls)
        # The kinds of storage import this module, so it imports them only when called.
        make: Callable[..., Storage] = importlib.import_module("ludus.store.places").make_storage
        return make(*place, **options)

    check_owned: Callable[[], None]
    """Called before anything is created, replaced or removed; raises once the run is taken."""

    @property
    def place(self) -> str:
        """Location of the storage, as a user would write it."""

    @property
    def name(self) -> str:
        """The last part of the location."""

    def check_place(self) -> None:
        """Raise LudusError, before any work begins, if nothing can be stored here."""

    def lock(self) -> AbstractContextManager[Lock]:
        """Return the lock, to be entered; entering raises RunError naming a holder."""

    def is_locked(self) -> bool:
        """Return whether a live process holds the lock."""

    def exists(self, name: str) -> bool: ...

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory ('' is the root); empty if it does not exist."""

    def size(self, name: str) -> int: ...

    def read(self, name: str, *, limit: int = ...) -> bytes:
        """Return a whole file of at most `limit` bytes."""

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the complete lines of a file of any size, skipping those too long to be a record."""

    def sha256(self, name: str, *, length: int | None = None) -> str:
        """Return the hash of a file, or of its first bytes."""

    def local(self, name: str) -> AbstractContextManager[Path]:
        """Yield a path at which a library can read the file, valid inside the block."""

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file atomically: a crash leaves the old one or the new one."""

    def add(self, folder: str, suffix: str, fill: Callable[[Path], None]) -> str:
        """Store the file that `fill` writes under the hash of its content, and return its name."""

    def copy(self, source: str, name: str) -> None:
        """Copy one file over another."""

    def commit(
        self, name: str, fill: Callable[[Path], None], *, step: Callable[[str], None]
    ) -> None:
        """Create a directory atomically: `fill` writes its files into a temporary one."""

    def set_aside(self, name: str) -> str:
        """Rename something damaged or outdated, and return its new name."""

    def remove(self, name: str) -> None:
        """Delete a file or directory; an interrupted deletion leaves only what is never read."""

    def sweep(self) -> None:
        """Delete the files that crashed writers left behind; only the holder of the lock may do this."""

    def append(self, name: str) -> Growing:
        """Return the append-only file of this name, opening it at the first call."""

    def release(self, name: str) -> None:
        """Make an append-only file durable and close it; the next `append` opens it again."""

    def offsets(self) -> dict[str, int]:
        """Return the length of each append-only file, except journals."""

    def log_hashes(self) -> dict[str, str]:
        """Return the hash of each append-only file up to its offset, except journals."""

    def flush_appends(self) -> bool:
        """Try to write what a full disk held back; return whether nothing is left."""

    def sync_appends(self) -> None:
        """Make every append-only file durable."""

    def cut_back(self, offsets: Mapping[str, int], *, keep: tuple[str, ...]) -> None:
        """Truncate append-only files to the offsets of a checkpoint."""

    def close(self) -> None:
        """Make the append-only files durable and close them."""

    def free_bytes(self) -> int: ...
