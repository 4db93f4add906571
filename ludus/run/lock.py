"""One process per run directory: a lock held for the whole run, which dies with its holder."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from pathlib import Path
from types import TracebackType

from ludus.core.errors import RunError

# A POSIX lock vanishes when its process closes any descriptor of the file, so within this process
# the file is opened once, here, and this table answers for it.
_held: dict[Path, int] = {}


class RunLock:
    """The lock of one run directory."""

    def __init__(self, directory: Path) -> None:
        self._path = (directory / "LOCK").resolve()

    def __enter__(self) -> RunLock:
        """Take the lock, or raise RunError naming who holds it."""
        if self._path in _held:
            raise RunError(
                f"{self._path.parent} is in use by this very process; let that run end first"
            )
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(descriptor, 4096)
            os.close(descriptor)
            raise RunError(
                f"{self._path.parent} is in use by {_describe(holder)}; wait for it, or stop it first"
            ) from None
        os.ftruncate(descriptor, 0)
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        os.write(descriptor, json.dumps(about).encode())
        _held[self._path] = descriptor
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Let the next process in."""
        os.close(_held.pop(self._path))


def is_locked(directory: Path) -> bool:
    """Return whether a live process holds this run directory."""
    path = (directory / "LOCK").resolve()
    if path in _held:
        return True
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError:
        return False
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def _describe(holder: bytes) -> str:
    try:
        about = json.loads(holder)
        return f"process {int(about['pid'])} on {str(about['host'])[:80]}"
    except (ValueError, KeyError, TypeError):
        return "another process"
