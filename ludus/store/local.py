"""Storage on the local disk: the only module that opens a run's files there."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from ludus.core.errors import RunError, StorageError
from ludus.store.files import (
    Append,
    hash_file,
    open_plain,
    sync_directory,
    sync_file,
    write_durably,
)
from ludus.store.leftovers import remove_leftovers
from ludus.store.lock import RunLock, is_locked
from ludus.store.logs import GrowingLogs
from ludus.store.storage import check_name

_MAX_LINE = 1 << 20


class LocalStorage(GrowingLogs):
    """A directory on the local disk, with safe relative names."""

    def __init__(self, root: str | Path) -> None:
        super().__init__()
        self.root = Path(root)

    @property
    def place(self) -> str:
        return str(self.root)

    @property
    def name(self) -> str:
        return self.root.name

    def check_place(self) -> None:
        if self.root.is_symlink():
            raise RunError(f"{self.root} is a link; a run is kept in a directory of its own")
        try:
            is_other = not stat.S_ISDIR(self.root.stat().st_mode)
        except FileNotFoundError:
            return
        except OSError as error:
            raise RunError(f"{self.root} cannot be written: {error.strerror}") from None
        if is_other:
            raise RunError(f"{self.root} is a file; choose another name for the run")

    def lock(self) -> RunLock:
        """Create the root if necessary, and return its lock, to be entered."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{self.root} cannot be written: {error.strerror}") from None
        return RunLock(self.root)

    def is_locked(self) -> bool:
        return is_locked(self.root)

    def path(self, name: str) -> Path:
        """Return the path of this name; refuse a name that could escape the root."""
        check_name(name)
        path = self.root
        for part in name.split("/"):
            path = path / part
            with _storage_errors(path, "read"):
                if path.is_symlink():
                    raise StorageError(f"{path} is a link; a run directory holds none")
        return path

    def make_root(self) -> None:
        """Create the root and the directories above it; nothing else here does."""
        with _storage_errors(self.root, "made"):
            self.root.mkdir(parents=True, exist_ok=True)

    def make(self, name: str) -> Path:
        """Create a directory and its parents below the root, and return its path."""
        path = self.path(name)
        self.check_owned()
        if not path.is_dir():
            # A root removed since the check is not created again: then this fails.
            above = self.make(name.rpartition("/")[0]) if "/" in name else self.root
            with _storage_errors(path, "made", self.root):
                path.mkdir(exist_ok=True)
                sync_directory(above)
        return path

    def exists(self, name: str) -> bool:
        path = self.path(name)
        with _storage_errors(path, "read"):
            return path.exists()

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory ('' is the root); empty if it does not exist."""
        path = self.path(directory) if directory else self.root
        with _storage_errors(path, "read"), contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(path))
        return []

    def size(self, name: str) -> int:
        """Return the size of a file in bytes."""
        path = self.path(name)
        with _storage_errors(path, "read"):
            return path.stat().st_size

    def read(self, name: str, *, limit: int = 1 << 28) -> bytes:
        """Return a whole file of at most `limit` bytes."""
        path = self.path(name)
        with open_plain(path) as file, _storage_errors(path, "read"):
            if os.fstat(file.fileno()).st_size > limit:
                raise StorageError(f"{path} is larger than the {limit} bytes it may have")
            return file.read(limit)

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file atomically: a crash leaves the old one or the new one, never a part."""
        path = self.path(name)
        if "/" in name:
            self.make(name.rpartition("/")[0])
        self.check_owned()
        temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        try:
            with _storage_errors(path, "written", self.root):
                write_durably(temporary, [data])
                temporary.replace(path)
                sync_directory(path.parent)
        except StorageError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise

    def commit(
        self, name: str, fill: Callable[[Path], None], *, step: Callable[[str], None]
    ) -> None:
        """Create a directory atomically: `fill` writes into a temporary one, which is then renamed.

        `step` is called at each named point, so that tests can kill the process there.
        """
        path = self.path(name)
        if "/" in name:
            self.make(name.rpartition("/")[0])
        self.check_owned()
        temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        self.discard(temporary)
        try:
            with _storage_errors(path, "written"):
                temporary.mkdir()
                step("made")
                fill(temporary)
                sync_directory(temporary)
                step("filled")
                self.check_owned()
                if path.exists():
                    self.set_aside(name)
                temporary.rename(path)
                step("renamed")
                sync_directory(path.parent)
        except Exception:
            self.discard(temporary)
            raise

    def add(self, folder: str, suffix: str, fill: Callable[[Path], None]) -> str:
        """Store the file that `fill` writes under the hash of its content, and return its name."""
        above = self.make(folder)
        temporary = above / f"new.tmp-{os.getpid()}"
        try:
            with _storage_errors(above, "written"):
                fill(temporary)
                sync_file(temporary)
                name = f"{hash_file(temporary)}{suffix}"
                # A file with the same content is replaced, in case its bytes on disk have changed.
                temporary.replace(above / name)
                sync_directory(above)
        except StorageError:
            temporary.unlink(missing_ok=True)
            raise
        return name

    def copy(self, source: str, name: str) -> None:
        """Copy one file over another; a crash leaves the old one or the new one."""
        folder = self.make(name.rpartition("/")[0]) if "/" in name else self.root
        temporary = folder / f"new.tmp-{os.getpid()}"
        path = self.path(name)
        try:
            with _storage_errors(path, "written"):
                shutil.copyfile(self.path(source), temporary)
                sync_file(temporary)
                temporary.replace(path)
                sync_directory(folder)
        except StorageError:
            temporary.unlink(missing_ok=True)
            raise

    @contextlib.contextmanager
    def local(self, name: str) -> Iterator[Path]:
        """Yield a path at which a library can read the file, valid inside the block."""
        yield self.path(name)

    def set_aside(self, name: str) -> str:
        """Rename something damaged or outdated, and return its new name."""
        path = self.path(name)
        self.check_owned()
        number = 0
        while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
            number += 1
        with _storage_errors(path, "renamed"):
            path.rename(aside)
        return aside.name

    def remove(self, name: str) -> None:
        """Delete a file or directory; an interrupted deletion leaves only a name that is never read."""
        path = self.path(name)
        self.check_owned()
        with _storage_errors(path, "removed"):
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
        """Delete the files that crashed writers left behind; only the holder of the lock may do this."""
        remove_leftovers(self.root)

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the complete lines of a file of any size, skipping those too long to be a record."""
        with open_plain(self.path(name)) as file:
            is_whole = True
            while line := file.readline(_MAX_LINE):
                if is_whole and line.endswith(b"\n"):
                    yield line[:-1]
                is_whole = line.endswith(b"\n")

    def _open_log(self, name: str) -> Append:
        if "/" in name:
            self.make(name.rpartition("/")[0])
        path = self.path(name)
        with _storage_errors(path, "opened"):
            return Append(path)

    def _shorten(self, name: str, length: int) -> None:
        path = self.path(name)
        with _storage_errors(path, "cut back"):
            if length:
                os.truncate(path, length)
            else:
                path.unlink(missing_ok=True)

    def sha256(self, name: str, *, length: int | None = None) -> str:
        """Return the hash of a file, or of its first bytes, read in chunks."""
        path = self.path(name)
        with _storage_errors(path, "read"):
            return hash_file(path, length=length)

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free


@contextlib.contextmanager
def _storage_errors(path: Path, deed: str, root: Path | None = None) -> Iterator[None]:
    """Turn a system error into a StorageError that says what failed, in which root."""
    try:
        yield
    except OSError as error:
        why = error.strerror
        if isinstance(error, FileNotFoundError) and deed != "read" and root and not root.exists():
            why = f"{why}: {root} is not there; ludus.Storage({str(root)!r}) makes it"
        raise StorageError(f"{path} cannot be {deed}: {why}") from error
