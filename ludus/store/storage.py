"""The one door to the disk: every file of a run is opened through here and nowhere else."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ludus.core.errors import StorageError
from ludus.store.files import Append, hash_file, open_plain, sync_directory, write_durably
from ludus.store.leftovers import remove_leftovers

__all__ = ["Append", "Storage", "hash_file", "is_log_name", "is_safe_name", "write_durably"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_MAX_LINE = 1 << 20


def is_safe_name(name: str) -> bool:
    """Return whether a relative name stays below the root."""
    return all(_NAME.fullmatch(part) for part in name.split("/"))


def is_log_name(name: str) -> bool:
    """Return whether a growing file may have this name, so that a resume may shorten it."""
    folder = name.split("/")[0] if "/" in name else ""
    if not is_safe_name(name) or folder in ("checkpoints", "models", "segments"):
        return False
    return folder == "events" or name.endswith((".jsonl", ".csv"))


class Storage:
    """A directory on the local disk, seen through safe relative names."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self._appends: dict[str, Append] = {}
        self._guard = threading.Lock()
        self._continued: set[str] | None = None
        self.check_owned: Callable[[], None] = lambda: None
        """Called before anything is made, replaced or removed; a run raises here once it is not its own."""

    def path(self, name: str) -> Path:
        """Return where this name lies; refuse a name that could lead out of the root."""
        if not is_safe_name(name):
            shown = name if len(name) <= 80 else name[:77] + "..."
            raise StorageError(
                f"{shown!r} is not a safe file name; use letters, digits, '.', '_' and '-'"
            )
        path = self.root
        for part in name.split("/"):
            path = path / part
            with _told(path, "read"):
                if path.is_symlink():
                    raise StorageError(f"{path} is a link; a run directory holds none")
        return path

    def make_root(self) -> None:
        """Make the root itself, and the directories above it; nothing else here does."""
        with _told(self.root, "made"):
            self.root.mkdir(parents=True, exist_ok=True)

    def make(self, name: str) -> Path:
        """Make a directory, and those above it but for the root, and return its path."""
        path = self.path(name)
        self.check_owned()
        if not path.is_dir():
            # A root that was taken away since the check is not made again: then this fails.
            above = self.make(name.rpartition("/")[0]) if "/" in name else self.root
            with _told(path, "made"):
                path.mkdir(exist_ok=True)
                sync_directory(above)
        return path

    def exists(self, name: str) -> bool:
        path = self.path(name)
        with _told(path, "read"):
            return path.exists()

    def names(self, directory: str) -> list[str]:
        """Return the sorted names in a directory ('' is the root); none if it does not exist."""
        path = self.path(directory) if directory else self.root
        with _told(path, "read"), contextlib.suppress(FileNotFoundError):
            return sorted(os.listdir(path))
        return []

    def size(self, name: str) -> int:
        """Return the bytes of one file."""
        path = self.path(name)
        with _told(path, "read"):
            return path.stat().st_size

    def read(self, name: str, *, limit: int = 1 << 28) -> bytes:
        """Return a whole file of at most `limit` bytes."""
        path = self.path(name)
        with open_plain(path) as file, _told(path, "read"):
            if os.fstat(file.fileno()).st_size > limit:
                raise StorageError(f"{path} is larger than the {limit} bytes it may have")
            return file.read(limit)

    def write(self, name: str, data: bytes) -> None:
        """Write a whole file so that a crash leaves the old one or the new one, never a part."""
        path = self.path(name)
        self.check_owned()
        temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        try:
            with _told(path, "written"):
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
        """Make a directory appear whole: `fill` writes into a temporary one, which is then renamed.

        `step` is told each point passed, so that tests can kill the process there.
        """
        path = self.path(name)
        if "/" in name:
            self.make(name.rpartition("/")[0])
        self.check_owned()
        temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        self.discard(temporary)
        try:
            with _told(path, "written"):
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

    def set_aside(self, name: str) -> str:
        """Rename something damaged or outdated out of the way, and return its new name."""
        path = self.path(name)
        self.check_owned()
        number = 0
        while (aside := path.with_name(f"{path.name}.aside-{number}")).exists():
            number += 1
        with _told(path, "renamed"):
            path.rename(aside)
        return aside.name

    def remove(self, name: str) -> None:
        """Delete a file or directory; a crash half way leaves only a name that nobody reads."""
        path = self.path(name)
        self.check_owned()
        with _told(path, "removed"):
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
        remove_leftovers(self.root)

    def lines(self, name: str) -> Iterator[bytes]:
        """Yield the whole lines of a file however large, but for those too long to be a record."""
        with open_plain(self.path(name)) as file:
            is_whole = True
            while line := file.readline(_MAX_LINE):
                if is_whole and line.endswith(b"\n"):
                    yield line[:-1]
                is_whole = line.endswith(b"\n")

    def append(self, name: str) -> Append:
        """Return the growing file of this name, opening it at the first call."""
        with self._guard:
            if name not in self._appends:
                path = self.path(name)
                self.check_owned()
                if not is_log_name(name):
                    raise StorageError(
                        f"'{name}' cannot be a growing file; name it *.jsonl or *.csv, or put it in"
                        " events/"
                    )
                if "/" in name:
                    self.make(name.rpartition("/")[0])
                self._clear_way(name)
                with _told(path, "opened"):
                    self._appends[name] = Append(path)
            return self._appends[name]

    def _clear_way(self, name: str) -> None:
        """Put aside what stands where a log begins that the checkpoint did not know of.

        A lost part of the run wrote it, or a user did. What is in nobody's way is not touched.
        """
        if self._continued is None or name in self._continued or name.startswith("journals/"):
            return
        if not self.exists(name):
            return
        if name.startswith("events/"):
            # TensorBoard would go on reading a file that is only renamed.
            self.remove(name)
        else:
            self.set_aside(name)

    def offsets(self) -> dict[str, int]:
        """Return how far each growing file has been written, but for journals.

        What a stage writes below journals/ was done, whatever becomes of the run: no resume cuts it.
        """
        appends = sorted(self._appends.items())
        return {name: file.offset for name, file in appends if not name.startswith("journals/")}

    def log_hashes(self) -> dict[str, str]:
        """Return the hash of each growing file up to its offset, but for journals."""
        return {name: self._appends[name].sha256 for name in self.offsets()}

    def flush_appends(self) -> bool:
        """Try to write what a full disk made us hold back; return whether nothing is left."""
        flushed = [file.flush() for file in self._appends.values()]
        return all(flushed)

    def sync_appends(self) -> None:
        """Make every growing file durable."""
        for file in list(self._appends.values()):
            file.sync()

    def cut_back(self, offsets: Mapping[str, int], *, keep: tuple[str, ...]) -> None:
        """Shorten growing files to where a checkpoint saw them.

        One that it did not know is put aside when the run begins to write it, and not before. The
        files in `keep` (journals of what happened to the run) are left as they are.
        """
        for name, offset in sorted(offsets.items()):
            size = self.size(name) if self.exists(name) else 0
            if name not in keep and size < offset:
                raise StorageError(
                    f"{self.path(name)} has {size} bytes, but the checkpoint saw {offset}; the file"
                    " was shortened or lost: restore it, or start a new run"
                )
        self._continued = {*offsets, *keep}
        for name in sorted({*offsets} - {*keep}):
            path = self.path(name)
            with _told(path, "cut back"):
                if offsets[name]:
                    os.truncate(path, offsets[name])
                else:
                    path.unlink(missing_ok=True)

    def close(self) -> None:
        """Make the growing files durable and close them."""
        for file in self._appends.values():
            file.flush()
            with contextlib.suppress(OSError):
                file.sync()
            file.close()
        self._appends.clear()

    def sha256(self, name: str, *, length: int | None = None) -> str:
        """Return the hash of one file, or of its first bytes, read in pieces."""
        path = self.path(name)
        with _told(path, "read"):
            return hash_file(path, length=length)

    def free_bytes(self) -> int:
        return shutil.disk_usage(self.root).free


@contextlib.contextmanager
def _told(path: Path, deed: str) -> Iterator[None]:
    """Turn an error of the system into one that says what could not be done."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} cannot be {deed}: {error.strerror}") from error
