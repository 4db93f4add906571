"""What a storage is: a place of named files. A kind of storage is a file beside this one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from ludus.core.errors import StorageError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")


def is_safe_name(name: str) -> bool:
    """Return whether a relative name stays below the root."""
    return all(_NAME.fullmatch(part) for part in name.split("/"))


def check_name(name: str) -> None:
    """Raise StorageError for a name that could lead out of the root."""
    if not is_safe_name(name):
        shown = name if len(name) <= 80 else name[:77] + "..."
        raise StorageError(
            f"{shown!r} is not a safe file name; use letters, digits, '.', '_' and '-'"
        )


def is_log_name(name: str) -> bool:
    """Return whether a growing file may have this name, so that a resume may shorten it."""
    folder = name.split("/")[0] if "/" in name else ""
    if not is_safe_name(name) or folder in ("checkpoints", "models", "segments"):
        return False
    return folder == "events" or name.endswith((".jsonl", ".csv"))


class Growing(Protocol):
    """A file that only grows; what was written can be made durable and, on resume, cut back."""

    offset: int
    """How many bytes have been written."""
    backlog: bytes
    """What there was no space for, to be written before anything else."""

    @property
    def sha256(self) -> str:
        """The hash of all bytes up to the offset."""

    def write(self, data: bytes) -> None:
        """Add the bytes in one piece, or hold them back where there is no space."""

    def add_durably(self, data: bytes) -> None:
        """Add the bytes and make them durable; if that fails, raise and leave the file as it was."""

    def flush(self) -> bool:
        """Try to write what is held back; return whether nothing is left."""

    def sync(self) -> None:
        """Make everything written so far durable."""

    def close(self) -> None: ...


class Lock(Protocol):
    """Held by the one process that writes."""

    def check(self) -> None:
        """Raise RunTaken if it is not held any more."""


@runtime_checkable
class Storage(Protocol):
    """Where the files of one run are, by safe relative names; every failure is a StorageError.

    A file is whole or absent, and so is a directory that was committed. What has been written, added,
    copied or committed is durable when the call returns.

    `Storage(place)` makes the storage at a directory or a URL, and the directory where there is none;
    `ludus.open_storage(place)` makes nothing.
    """

    def __new__(cls, *place: Any, **options: Any) -> Storage:
        """Return the storage of the kind that the place asks for; a kind of one's own is made as it is."""
        if cls is not Storage:
            return super().__new__(cls)
        # A kind of storage knows what one is, not the other way round.
        make: Callable[..., Storage] = importlib.import_module("ludus.store.places").make_storage
        return make(*place, **options)

    check_owned: Callable[[], None]
    """Called before anything is made, replaced or removed; a run raises here once it is not its own."""

    @property
    def place(self) -> str:
        """Where it is, as a user would name it."""

    @property
    def name(self) -> str:
        """The last part of the place."""

    def check_place(self) -> None:
        """Raise LudusError if nothing can be kept here; before any work begins."""

    def lock(self) -> AbstractContextManager[Lock]:
        """Return the lock of the place, to be entered; entering raises RunError naming a holder."""

    def is_locked(self) -> bool:
        """Return whether a live process holds the lock."""

    def exists(self, name: str) -> bool: ...

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory ('' is the root); none if it does not exist."""

    def size(self, name: str) -> int: ...

    def read(self, name: str, *, limit: int = ...) -> bytes:
        """Return a whole file of at most `limit` bytes."""

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the whole lines of a file however large, but for those too long to be a record."""

    def sha256(self, name: str, *, length: int | None = None) -> str:
        """Return the hash of one file, or of its first bytes."""

    def local(self, name: str) -> AbstractContextManager[Path]:
        """Give a path at which a library can read the file, for as long as the block lasts."""

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file, so that a crash leaves the old one or the new one."""

    def add(self, folder: str, suffix: str, fill: Callable[[Path], None]) -> str:
        """Keep the file that `fill` writes under the hash of its content, and return its name."""

    def copy(self, source: str, name: str) -> None:
        """Make one file the same as another."""

    def commit(
        self, name: str, fill: Callable[[Path], None], *, step: Callable[[str], None]
    ) -> None:
        """Make a directory appear whole: `fill` writes its files into a temporary one."""

    def set_aside(self, name: str) -> str:
        """Rename something damaged or outdated out of the way, and return its new name."""

    def remove(self, name: str) -> None:
        """Delete a file or directory; a crash half way leaves only what nobody reads."""

    def sweep(self) -> None:
        """Delete what crashed writers left behind; only the holder of the lock may do this."""

    def append(self, name: str) -> Growing:
        """Return the growing file of this name, opening it at the first call."""

    def offsets(self) -> dict[str, int]:
        """Return how far each growing file has been written, but for journals."""

    def log_hashes(self) -> dict[str, str]:
        """Return the hash of each growing file up to its offset, but for journals."""

    def flush_appends(self) -> bool:
        """Try to write what a full disk made us hold back; return whether nothing is left."""

    def sync_appends(self) -> None:
        """Make every growing file durable."""

    def cut_back(self, offsets: Mapping[str, int], *, keep: tuple[str, ...]) -> None:
        """Shorten growing files to where a checkpoint saw them."""

    def close(self) -> None:
        """Make the growing files durable and close them."""

    def free_bytes(self) -> int: ...
