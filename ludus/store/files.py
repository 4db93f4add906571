"""Files on disk: opened only if regular, made durable, hashed, and appended to."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import stat
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

from ludus.core.errors import StorageError

_CHUNK = 1 << 20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
# A link could lead out of the run directory, and a pipe could block the reader forever.
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading; raise StorageError for a link, a pipe, a device or a directory."""
    try:
        return os.fdopen(_open(path, os.O_RDONLY), "rb")
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error.strerror}") from error


def _open(path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | _SAFELY, 0o644)
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise StorageError(f"{path} is not a plain file")


def write_durably(path: Path, chunks: Iterable[Any]) -> tuple[int, str]:
    """Write a new file, make it durable, and return its size and hash."""
    digest, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            digest.update(chunk)
            size += len(chunk)
        file.flush()
        os.fsync(file.fileno())
    return size, digest.hexdigest()


def hash_file(path: Path, *, length: int | None = None) -> str:
    """Return the sha256 of a file, or of its first `length` bytes, read in chunks."""
    digest, left = hashlib.sha256(), math.inf if length is None else length
    with open_plain(path) as file:
        while left > 0 and (chunk := file.read(int(min(_CHUNK, left)))):
            digest.update(chunk)
            left -= len(chunk)
    return digest.hexdigest()


def sync_file(path: Path) -> None:
    """Make one file durable (fsync)."""
    with path.open("rb") as file:
        os.fsync(file.fileno())


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable (fsync)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


class Append:
    """An append-only file; its content can be made durable and, on resume, truncated.

    Bytes that a full disk refuses are kept in memory and written, in order, when there is space again.
    A .jsonl file that a power cut left with half a line at its end loses that half when opened. One
    thread may make it durable while another appends.
    """

    def __init__(self, path: Path) -> None:
        is_new = not path.exists()
        self._path = path
        self._descriptor = _open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self.offset = os.fstat(self._descriptor).st_size
        self.backlog = b""
        self._is_torn = False
        self._guard = threading.RLock()
        if is_new:
            sync_directory(path.parent)
        if path.suffix == ".jsonl":
            self._drop_torn_line()
        self._digest = hashlib.sha256()
        for start in range(0, self.offset, _CHUNK):
            end = min(start + _CHUNK, self.offset)
            self._digest.update(os.pread(self._descriptor, end - start, start))

    @property
    def sha256(self) -> str:
        """Hash of the file up to the offset."""
        return self._digest.hexdigest()

    def _drop_torn_line(self) -> None:
        end = self.offset
        while end > 0:
            start = max(0, end - _CHUNK)
            newline = os.pread(self._descriptor, end - start, start).rfind(b"\n")
            end = start if newline < 0 else start + newline + 1
            if newline >= 0:
                break
        if end < self.offset:
            os.ftruncate(self._descriptor, end)
            self.offset = end

    def write(self, data: bytes) -> None:
        """Append the bytes in one piece, or hold them back if the disk is full."""
        with self._guard:
            self.backlog += data
            self.flush()

    def flush(self) -> bool:
        """Try to write the backlog; return whether it is empty."""
        with self._guard:
            return self._flush()

    def _flush(self) -> bool:
        if not self.backlog:
            return True
        try:
            if self._is_torn:
                os.ftruncate(self._descriptor, self.offset)
            self._is_torn = True
            written = os.write(self._descriptor, self.backlog)
            if written != len(self.backlog):
                os.ftruncate(self._descriptor, self.offset)
                self._is_torn = False
                return False
        except OSError as error:
            if error.errno not in _NO_SPACE:
                raise
            return False
        self.offset += written
        self._digest.update(self.backlog)
        self.backlog, self._is_torn = b"", False
        return True

    def add_durably(self, data: bytes) -> None:
        """Append the bytes and make them durable; if that fails, raise and leave the file unchanged."""
        with self._guard:
            self._add_durably(data)

    def _add_durably(self, data: bytes) -> None:
        if not self.flush():
            raise StorageError(f"{self._path} cannot be written: there is no space left")
        try:
            # A failed write or sync may leave any part of the bytes.
            self._is_torn = True
            view = memoryview(data)
            while view:
                view = view[os.write(self._descriptor, view) :]
            os.fsync(self._descriptor)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._descriptor, self.offset)
                self._is_torn = False
            raise StorageError(f"{self._path} cannot be written: {error.strerror}") from error
        self.offset += len(data)
        self._digest.update(data)
        self._is_torn = False

    def sync(self) -> None:
        """Make everything written so far durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)
