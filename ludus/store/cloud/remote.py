"""Storage in an object store, through fsspec: s3://bucket/runs/name, or memory://runs/name in tests.

An object store has no rename and no fsync. A file is written whole. A directory is its files and then its
seal (manifest.json, model.json), written last; without a seal it does not exist. A log grows in a local
file and is uploaded whole at each checkpoint, before the manifest that records its length.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path

from ludus.core.errors import StorageError
from ludus.store.cloud.connection import Connection, storage_errors
from ludus.store.cloud.lease import Lease
from ludus.store.cloud.spool import Spooled, make_folder, passing_folder
from ludus.store.files import hash_file, open_plain
from ludus.store.logs import GrowingLogs
from ludus.store.storage import check_name

_SEALS = ("manifest.json", "model.json")
_SEALED = ("checkpoints", "models")
_MAX_LINE = 1 << 20
_CHECKPOINT = re.compile(r"checkpoints/[0-9]{10}")
_OF_A_MODEL = {"weights.safetensors"}


class RemoteStorage(GrowingLogs):
    """Objects below one prefix, by safe relative names."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self._place = url.rstrip("/")
        self._connection = Connection(self._place)
        self._spool: Path | None = None

    @property
    def place(self) -> str:
        return self._place

    @property
    def name(self) -> str:
        return self._place.rpartition("/")[2]

    def check_place(self) -> None:
        self._connection.check()

    def lock(self) -> Lease:
        return Lease(self._connection, self._place)

    def is_locked(self) -> bool:
        return self.lock().is_held()

    def _open(self, name: str) -> Spooled | None:
        """Return the log of this name if this process is writing it: its local file is then the newest."""
        check_name(name)
        log = self._appends.get(name)
        return log if isinstance(log, Spooled) else None

    def exists(self, name: str) -> bool:
        if self._open(name) is not None or self._connection.size(name) is not None:
            return True
        return any(True for _ in self._connection.below(name))

    def names(self, directory: str) -> list[str]:
        if directory:
            check_name(directory)
        found: dict[str, list[str]] = {}
        for name in self._connection.below(directory):
            first, _, rest = name.partition("/")
            found.setdefault(first, []).append(rest)
        if directory in _SEALED:
            return sorted(name for name, files in found.items() if {*files} & {*_SEALS})
        return sorted(found)

    def size(self, name: str) -> int:
        if (log := self._open(name)) is not None:
            return log.offset
        size = self._connection.size(name)
        if size is None:
            raise StorageError(f"{self._place}/{name} cannot be read: it is not there")
        return size

    def read(self, name: str, *, limit: int = 1 << 28) -> bytes:
        if self.size(name) > limit:
            raise StorageError(f"{self._place}/{name} is larger than the {limit} bytes it may have")
        if (log := self._open(name)) is not None:
            return log.path.read_bytes()
        return self._connection.get(name)

    def lines(self, name: str) -> Iterator[bytes]:
        with self.local(name) as path, open_plain(path) as file:
            is_whole = True
            while line := file.readline(_MAX_LINE):
                if is_whole and line.endswith(b"\n"):
                    yield line[:-1]
                is_whole = line.endswith(b"\n")

    def sha256(self, name: str, *, length: int | None = None) -> str:
        with self.local(name) as path:
            return hash_file(path, length=length)

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        if (log := self._open(name)) is not None:
            yield log.path
            return
        with passing_folder() as folder:
            path = Path(folder) / name.rpartition("/")[2]
            self._connection.fetch(name, path)
            yield path

    def write(self, name: str, data: bytes) -> None:
        check_name(name)
        self.check_owned()
        self._connection.put(name, data)

    def add(self, folder: str, suffix: str, fill: Callable[[Path], None]) -> str:
        check_name(folder)
        self.check_owned()
        with passing_folder() as temporary:
            path = Path(temporary) / "new"
            fill(path)
            name = f"{hash_file(path)}{suffix}"
            self._connection.send(path, f"{folder}/{name}")
        return name

    def copy(self, source: str, name: str) -> None:
        check_name(source)
        check_name(name)
        self.check_owned()
        self._connection.copy(source, name)

    def commit(
        self, name: str, fill: Callable[[Path], None], *, step: Callable[[str], None]
    ) -> None:
        """Fill a local directory, then upload its files, the seal last: only the seal makes it complete."""
        check_name(name)
        self.check_owned()
        with passing_folder() as temporary:
            folder = Path(temporary)
            step("made")
            with storage_errors(f"{self._place}/{name}", "written"):
                fill(folder)
            step("filled")
            self.check_owned()
            if self.exists(name):
                self.set_aside(name)
            for path in sorted(folder.iterdir(), key=lambda path: (path.name in _SEALS, path.name)):
                step(f"put {path.name}")
                self._connection.send(path, f"{name}/{path.name}")
            step("renamed")

    def set_aside(self, name: str) -> str:
        check_name(name)
        self.check_owned()
        number = 0
        while self.exists(aside := f"{name}.aside-{number}"):
            number += 1
        for one in self._objects(name):
            self._connection.copy(one, aside + one[len(name) :])
        self.remove(name)
        return aside.rpartition("/")[2]

    def remove(self, name: str) -> None:
        """Delete a file or directory, its seal first: a partial deletion does not count as existing."""
        check_name(name)
        self.check_owned()
        for one in reversed(self._objects(name)):
            self._connection.delete(one)

    def _objects(self, name: str) -> list[str]:
        """Return the objects of a file or a directory, a seal last."""
        found = [f"{name}/{below}" for below in self._connection.below(name)]
        if self._connection.size(name) is not None:
            found.append(name)
        return sorted(found, key=lambda one: (one.rpartition("/")[2] in _SEALS, one))

    def files(self) -> list[str]:
        """Return the name of every object."""
        return self._connection.below("")

    def sweep(self) -> None:
        for folder in _SEALED:
            found: dict[str, set[str]] = {}
            for name in self._connection.below(folder):
                first, _, rest = name.partition("/")
                found.setdefault(f"{folder}/{first}", set()).add(rest)
            for name, files in found.items():
                is_ours = _CHECKPOINT.fullmatch(name) or files <= _OF_A_MODEL
                if is_ours and not files & {*_SEALS}:
                    self.remove(name)

    def _open_log(self, name: str) -> Spooled:
        if self._spool is None:
            self._spool = make_folder()
            weakref.finalize(self, shutil.rmtree, self._spool, ignore_errors=True)
        path = self._spool / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        length = self._connection.size(name)
        if length is not None:
            self._connection.fetch(name, path)
        return Spooled(
            path, lambda data: self._connection.put(name, data), is_put=length is not None
        )

    def _shorten(self, name: str, length: int) -> None:
        size = self._connection.size(name)
        if size is None or size == length:
            return
        if length:
            self._connection.put(name, self._connection.get(name)[:length])
        else:
            self._connection.delete(name)

    def close(self) -> None:
        try:
            for log in list(self._appends.values()):
                log.sync()
        finally:
            super().close()
            if self._spool is not None:
                shutil.rmtree(self._spool, ignore_errors=True)
                self._spool = None

    def free_bytes(self) -> int:
        """Return a number larger than any need: an object store has no limit to report."""
        return 1 << 62
