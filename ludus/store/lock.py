"""Lock on a run directory: one process per run, held for the whole run, released if the process dies."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import time
from pathlib import Path

from ludus.core.errors import RunError, RunTaken

# A POSIX lock vanishes when its process closes any descriptor of the file, so within this process
# the file is opened once, here, and this table is checked first.
_held: dict[Path, int] = {}
# Locks are not inherited: a forked child holds none of its parent's.
os.register_at_fork(after_in_child=_held.clear)
# If the lock were a link, another file would be truncated.
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# `is_locked` holds the lock for an instant, so one failure is not enough.
_TRIES, _PAUSE = 3, 0.05


class RunLock:
    """The lock of one run directory."""

    def __init__(self, directory: Path) -> None:
        self._path = _lock_path(directory)

    def __enter__(self) -> RunLock:
        """Take the lock, or raise RunError naming its holder."""
        if self._path in _held:
            raise RunError(
                f"{self._path.parent} is in use by this very process; let that run end first"
            )
        if self._path.is_symlink():
            raise RunError(f"{self._path} is a link; a run directory holds none")
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | _SAFELY, 0o644)
        except OSError as error:
            raise RunError(f"{self._path.parent} cannot be written: {error.strerror}") from None
        try:
            if not _take(descriptor, tries=_TRIES):
                raise RunError(
                    f"{self._path.parent} is in use by {_describe(os.read(descriptor, 4096))};"
                    " wait for it, or stop it first"
                )
        except BaseException:
            os.close(descriptor)
            raise
        _held[self._path] = descriptor
        # The note is for people only: on a full disk it is missing, and the lock still holds.
        about = {"pid": os.getpid(), "host": socket.gethostname(), "since": time.time()}
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(about).encode(), 0)
        return self

    def check(self) -> None:
        """Raise RunTaken unless the lock file in the directory is still the one held."""
        held = os.fstat(_held[self._path])
        try:
            found = os.stat(self._path, follow_symlinks=False)
            is_ours = (found.st_dev, found.st_ino) == (held.st_dev, held.st_ino)
        except OSError:
            is_ours = False
        if is_ours:
            return
        directory = self._path.parent
        if directory.exists():
            problem = f"the LOCK of {directory} was removed or replaced, so another process may write there"
        else:
            problem = f"{directory} was moved or removed"
        raise RunTaken(
            f"{problem} while this process trained: it stops and writes nothing more; what was saved can"
            " be resumed from where it is now"
        )

    def __exit__(self, *error: object) -> None:
        """Release the lock."""
        os.close(_held.pop(self._path))


def is_locked(directory: Path) -> bool:
    """Return whether a live process holds this run directory."""
    path = _lock_path(directory)
    if path in _held:
        return True
    try:
        descriptor = os.open(path, os.O_RDWR | _SAFELY)
    except OSError:
        return False
    try:
        return not _take(descriptor, tries=1)
    finally:
        os.close(descriptor)


def _lock_path(directory: Path) -> Path:
    return directory.resolve() / "LOCK"


def _take(descriptor: int, *, tries: int) -> bool:
    for attempt in range(tries):
        if attempt:
            time.sleep(_PAUSE)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EAGAIN):
                raise
    return False


def _describe(holder: bytes) -> str:
    try:
        about = json.loads(holder)
        host = "".join(letter for letter in str(about["host"]) if letter.isprintable())
        return f"process {int(about['pid'])} on {host[:80]}"
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return "another process"
