"""Local spool files of an object store: a log grows in one, and is uploaded whole when it must be durable."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

from ludus.store.files import Append

# Earlier versions named the folders of logs ludus-logs.
_FOLDER = re.compile(r"ludus-(?:spool|logs)-([0-9]+)-.+")


def make_folder() -> Path:
    """Return a new local folder for logs, and delete the spools of dead processes."""
    # What a killed process had not uploaded is not needed: a resume uses its last checkpoint.
    for path in Path(tempfile.gettempdir()).glob("ludus-*"):
        found = _FOLDER.fullmatch(path.name)
        if found and path.is_dir() and not path.is_symlink() and _is_gone(int(found[1])):
            shutil.rmtree(path, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=_prefix()))


def passing_folder() -> tempfile.TemporaryDirectory[str]:
    """Return a temporary folder for uploads and downloads; one left by a kill is deleted like a spool."""
    return tempfile.TemporaryDirectory(prefix=_prefix())


def _prefix() -> str:
    return f"ludus-spool-{os.getpid()}-"


def _is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except PermissionError:
        # It belongs to another user.
        return False
    return False


class Spooled(Append):
    """An append-only local file whose durable form is an object; `put` replaces that object."""

    def __init__(self, path: Path, put: Callable[[bytes], None], *, is_put: bool) -> None:
        super().__init__(path)
        self.path = path
        self._put = put
        self._length_put = self.offset if is_put else -1
        # Uploading an older length after a newer one would lose durable journal records.
        self._order = threading.Lock()

    def sync(self) -> None:
        """Upload the current content, unless it is uploaded already."""
        with self._order:
            length = self.offset
            if length != self._length_put:
                self._put(self.path.read_bytes()[:length])
                self._length_put = length

    def add_durably(self, data: bytes) -> None:
        """Append the bytes and upload the file; if that fails, raise and undo it."""
        with self._order:
            before = self.path.read_bytes()[: self.offset]
            self._put(before + self.backlog + data)
            super().add_durably(data)
            self._length_put = self.offset
