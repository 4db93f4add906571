"""Logs of a storage: append-only files, which a resume truncates to the offsets of a checkpoint."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from ludus.core.errors import StorageError
from ludus.store.storage import Growing, check_name, is_log_name

SESSION = "session"
"""Field of timing.jsonl, the same in all lines of one process: where in the file they begin, in bytes."""


class GrowingLogs(ABC):
    """Common handling of logs for every storage; a subclass defines how one is opened and truncated."""

    def __init__(self) -> None:
        self._appends: dict[str, Growing] = {}
        self._guard = threading.Lock()
        self._closing = threading.RLock()
        """Held while a file is closed, or synced by the writer of a checkpoint in its own thread."""
        self._continued: set[str] | None = None
        self.check_owned: Callable[[], None] = lambda: None
        """Called before anything is created, replaced or removed; raises once the run is taken."""

    @property
    @abstractmethod
    def place(self) -> str: ...

    @abstractmethod
    def exists(self, name: str) -> bool: ...

    @abstractmethod
    def size(self, name: str) -> int: ...

    @abstractmethod
    def remove(self, name: str) -> None: ...

    @abstractmethod
    def set_aside(self, name: str) -> str: ...

    @abstractmethod
    def _open_log(self, name: str) -> Growing: ...

    @abstractmethod
    def _shorten(self, name: str, length: int) -> None: ...

    def append(self, name: str) -> Growing:
        """Return the append-only file of this name, opening it at the first call."""
        with self._guard:
            if name not in self._appends:
                check_name(name)
                self.check_owned()
                if not is_log_name(name):
                    raise StorageError(
                        f"'{name}' cannot be a growing file; name it *.jsonl or *.csv, or put it in"
                        " events/"
                    )
                self._clear_way(name)
                self._appends[name] = self._open_log(name)
            return self._appends[name]

    def release(self, name: str) -> None:
        """Make an append-only file durable and close it; the next `append` opens it again."""
        with self._guard:
            file = self._appends.pop(name, None)
        if file is not None:
            try:
                if not file.flush():
                    raise StorageError(f"{name} cannot be written: there is no space left")
                file.sync()
            finally:
                with self._closing:
                    file.close()

    def _clear_way(self, name: str) -> None:
        """Set aside a file at the place of a log that the checkpoint does not know.

        A lost part of the run wrote it, or a user did. Other files are not touched.
        """
        if self._continued is None or name in self._continued or name.startswith("journals/"):
            return
        if not self.exists(name):
            return
        if name.startswith("events/"):
            # TensorBoard would keep reading a renamed file.
            self.remove(name)
        else:
            self.set_aside(name)

    def offsets(self) -> dict[str, int]:
        """Return the length of each append-only file, except journals.

        A record in journals/ has taken effect, whatever becomes of the run: no resume truncates it.
        """
        appends = sorted(self._appends.items())
        return {name: file.offset for name, file in appends if not name.startswith("journals/")}

    def log_hashes(self) -> dict[str, str]:
        """Return the hash of each append-only file up to its offset, except journals."""
        return {name: self._appends[name].sha256 for name in self.offsets()}

    def flush_appends(self) -> bool:
        """Try to write what a full disk held back; return whether nothing is left."""
        flushed = [file.flush() for file in list(self._appends.values())]
        return all(flushed)

    def sync_appends(self) -> None:
        """Make every append-only file durable."""
        for name, file in list(self._appends.items()):
            with self._closing:
                # One that was released meanwhile is durable already.
                if self._appends.get(name) is file:
                    file.sync()

    def cut_back(self, offsets: Mapping[str, int], *, keep: tuple[str, ...]) -> None:
        """Truncate append-only files to the offsets of a checkpoint.

        A file it does not know is set aside when the run begins to write it, and not before. The files in
        `keep` (the events of the run) are left alone.
        """
        for name, offset in sorted(offsets.items()):
            size = self.size(name) if self.exists(name) else 0
            if name not in keep and size < offset:
                raise StorageError(
                    f"{self.place}/{name} has {size} bytes, but the checkpoint saw {offset}; the file"
                    " was shortened or lost: restore it, or start a new run"
                )
        self._continued = {*offsets, *keep}
        for name in sorted({*offsets} - {*keep}):
            self._shorten(name, offsets[name])

    def close(self) -> None:
        """Make the append-only files durable and close them."""
        for file in self._appends.values():
            file.flush()
            with contextlib.suppress(OSError):
                file.sync()
            file.close()
        self._appends.clear()
