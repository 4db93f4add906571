"""The one door to the disk: every file of a run is opened here and nowhere else."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ludus.core.errors import StorageError

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_CHUNK = 1 << 20


class Append:
    """A file that only grows; what was written can be made durable and, on resume, cut back.

    What a full disk refuses is held in memory and goes out, in order, when there is space again.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.offset = os.fstat(self._descriptor).st_size
        self.backlog = b""

    def write(self, data: bytes) -> None:
        """Add the bytes in one piece, or hold them back."""
        self.backlog += data
        self.flush()

    def flush(self) -> bool:
        """Try to write what is held back; return whether nothing is left."""
        if not self.backlog:
            return True
        try:
            written = os.write(self._descriptor, self.backlog)
            if written != len(self.backlog):
                os.ftruncate(self._descriptor, self.offset)
                return False
        except OSError:
            return False
        self.offset += written
        self.backlog = b""
        return True

    def sync(self) -> None:
        """Make everything written so far durable."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        os.close(self._descriptor)


class Storage:
    """A directory on the local disk, seen through safe relative names."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._appends: dict[str, Append] = {}
        self._guard = threading.Lock()

    def path(self, name: str) -> Path:
        """Return where this name lies; refuse a name that could lead out of the root."""
        path = self.root
        for part in name.split("/"):
            if not _NAME.fullmatch(part):
                raise StorageError(
                    f"'{name}' is not a safe file name; use letters, digits, '.', '_' and '-'"
                )
            path = path / part
            if path.is_symlink():
                raise StorageError(f"{path} is a link; a run directory holds none")
        return path

    def make(self, name: str) -> Path:
        """Make a directory, and those above it, and return its path."""
        path = self.path(name)
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(f"{path} cannot be made: {error.strerror}") from error
        return path

    def exists(self, name: str) -> bool:
        return self.path(name).exists()

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory ('' is the root); none if it does not exist."""
        try:
            return sorted(os.listdir(self.path(directory) if directory else self.root))
        except FileNotFoundError:
            return []

    def size(self, name: str) -> int:
        """Return the bytes of one file."""
        return self.path(name).stat().st_size

    def read(self, name: str, *, limit: int = 1 << 28) -> bytes:
        """Return a whole file of at most `limit` bytes."""
        path = self.path(name)
        try:
            if path.stat().st_size > limit:
                raise StorageError(f"{path} is larger than the {limit} bytes it may have")
            return path.read_bytes()
        except OSError as error:
            raise StorageError(f"{path} cannot be read: {error.strerror}") from error

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file so that a crash leaves the old one or the new one, never a part."""
        path = self.path(name)
        temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
            _sync_directory(path.parent)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise StorageError(f"{path} cannot be written: {error.strerror}") from error

    def commit(
        self, name: str, fill: Callable[[Path], None], *, step: Callable[[str], None]
    ) -> None:
        """Make a directory appear whole: `fill` writes into a temporary one, which is then renamed.

        `step` is told each point passed, so that tests can kill the process there.
        """
        path = self.path(name)
        temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        self.discard(temporary)
        try:
            temporary.mkdir(parents=True)
            step("made")
            fill(temporary)
            _sync_directory(temporary)
            step("filled")
            if path.exists():
                self.set_aside(name)
            temporary.rename(path)
            step("renamed")
            _sync_directory(path.parent)
        except Exception as error:
            self.discard(temporary)
            if isinstance(error, OSError):
                raise StorageError(f"{path} cannot be written: {error.strerror}") from error
            raise

    def set_aside(self, name: str) -> str:
        """Rename something damaged or outdated out of the way, and return its new name."""
        path = self.path(name)
        number = 0
        while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
            number += 1
        path.rename(aside)
        return aside.name

    def remove(self, name: str) -> None:
        """Delete a file or directory; a crash half way leaves only a name that nobody reads."""
        path = self.path(name)
        if path.is_dir():
            trash = path.with_name(f"{path.name}.trash-{os.getpid()}")
            self.discard(trash)
            path.rename(trash)
            self.discard(trash)
        else:
            path.unlink(missing_ok=True)

    def discard(self, path: Path) -> None:
        """Delete a directory that no reader knows."""
        shutil.rmtree(path, ignore_errors=True)

    def sweep(self) -> None:
        """Delete what crashed writers left behind; only the holder of the lock may do this."""
        for directory in (".", "checkpoints", "models", "segments", "events"):
            folder = self.root / directory
            for path in sorted(folder.glob("*")) if folder.is_dir() else []:
                if ".tmp-" in path.name or ".trash-" in path.name:
                    self.discard(path) if path.is_dir() else path.unlink(missing_ok=True)

    def append(self, name: str) -> Append:
        """Return the growing file of this name, opening it at the first call."""
        with self._guard:
            if name not in self._appends:
                if "/" in name:
                    self.make(name.rpartition("/")[0])
                try:
                    self._appends[name] = Append(self.path(name))
                except OSError as error:
                    raise StorageError(
                        f"{self.path(name)} cannot be opened: {error.strerror}"
                    ) from error
            return self._appends[name]

    def offsets(self) -> dict[str, int]:
        """Return how far each growing file has been written."""
        return {name: file.offset for name, file in sorted(self._appends.items())}

    def flush_appends(self) -> bool:
        """Try to write what a full disk made us hold back; return whether nothing is left."""
        flushed = [file.flush() for file in self._appends.values()]
        return all(flushed)

    def sync_appends(self) -> None:
        """Make every growing file durable."""
        for file in list(self._appends.values()):
            file.sync()

    def cut_back(self, offsets: Mapping[str, int], *, keep: tuple[str, ...]) -> None:
        """Shorten growing files to where a checkpoint saw them; delete those it did not know.

        The files in `keep` (journals of what happened to the run) are left as they are.
        """
        present = [name for name in self.names("") if name.endswith((".jsonl", ".csv"))]
        present += [f"events/{name}" for name in self.names("events")]
        for name in sorted({*present, *offsets}):
            if name in keep:
                continue
            path = self.path(name)
            size = path.stat().st_size if path.exists() else 0
            if size < offsets.get(name, 0):
                raise StorageError(
                    f"{path} has {size} bytes, but the checkpoint saw {offsets[name]}; the file was"
                    " shortened or lost: restore it, or start a new run"
                )
            if name in offsets:
                os.truncate(path, offsets[name])
            else:
                path.unlink()

    def close(self) -> None:
        """Make the growing files durable and close them."""
        for file in self._appends.values():
            file.flush()
            with contextlib.suppress(OSError):
                file.sync()
            file.close()
        self._appends.clear()

    def sha256(self, name: str) -> str:
        """Return the hash of one file, read in pieces."""
        return hash_file(self.path(name))

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free


def write_durably(path: Path, chunks: Iterator[Any]) -> tuple[int, str]:
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


def hash_file(path: Path) -> str:
    """Return the sha256 of a file, read in pieces."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
