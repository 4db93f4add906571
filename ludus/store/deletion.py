"""Delete a run: all that ludus wrote in its directory, and nothing else."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ludus.core.errors import RunError, StorageError
from ludus.store.directory import found_run
from ludus.store.local import LocalStorage
from ludus.store.own_files import is_own, is_own_folder
from ludus.store.storage import Storage

IsOutput = Callable[[Path], bool]
"""Returns whether a file or folder is an output of a command, such as a report, by its content."""
_LAST = ("run.json", "LOCK")
"""Deleted in this order after the rest: until then it is still a run, whose deletion can be repeated."""


@dataclass(frozen=True)
class Deletable:
    """A run that may be deleted."""

    place: str
    files: tuple[str, ...]
    """The files that go, by relative name."""
    num_bytes: int


def check_deletable(place: str, is_output: IsOutput) -> Deletable:
    """Return what goes with a run; raise RunError if it is in use, a link, or holds a file of the user's."""
    storage = _opened(place)
    if storage.is_locked():
        raise RunError(f"{place} is in use by a process that trains it; stop it first")
    return _listed(storage, is_output)


def delete_run(place: str, is_output: IsOutput) -> None:
    """Delete a run, holding its lock; what has come into its directory meanwhile is not touched."""
    storage = _opened(place)
    with storage.lock() as lock:
        found = _listed(storage, is_output)
        order = [name for name in found.files if name not in _LAST]
        order += [name for name in _LAST if name in found.files]
        if isinstance(storage, LocalStorage):
            for name in order:
                lock.check()
                _unlink(storage.root / name)
            _remove_folders(storage.root)
            return
        for name in order:
            if name != "LOCK":
                storage.remove(name)


def _opened(place: str) -> Storage:
    storage = found_run(place)
    storage.check_place()
    return storage


def _listed(storage: Storage, is_output: IsOutput) -> Deletable:
    if isinstance(storage, LocalStorage):
        return _listed_here(storage, is_output)
    # Imported here, so that only a run in an object store pays for it.
    from ludus.store.cloud.remote import RemoteStorage

    if not isinstance(storage, RemoteStorage):
        raise RunError(f"{storage.place} is in a storage of another kind; delete it there")
    files = storage.files()
    for name in files:
        if not is_own(name):
            raise _foreign(storage, name)
    return Deletable(storage.place, tuple(files), sum(map(storage.size, files)))


def _listed_here(storage: LocalStorage, is_output: IsOutput) -> Deletable:
    root, files, num_bytes = storage.root, [], 0
    outputs: set[str] = set()
    for above, folders, names in os.walk(root, onerror=_refuse):
        for name in [*folders, *names]:
            path = Path(above, name)
            own = path.relative_to(root).as_posix()
            if path.is_symlink():
                raise RunError(
                    f"{path} is a link, which ludus does not make; remove it, and delete again"
                )
            is_in_output = any(own.startswith(f"{output}/") for output in outputs)
            if name in folders:
                if not is_in_output and not is_own_folder(own):
                    if not is_output(path):
                        raise _foreign(storage, own)
                    outputs.add(own)
                continue
            if not path.is_file() or not (is_in_output or is_own(own) or is_output(path)):
                raise _foreign(storage, own)
            files.append(own)
            num_bytes += path.stat().st_size
    return Deletable(storage.place, tuple(files), num_bytes)


def _foreign(storage: Storage, name: str) -> RunError:
    return RunError(
        f"{storage.place} holds {name}, which no run writes; move it elsewhere, and delete again"
    )


def _refuse(error: OSError) -> None:
    raise StorageError(f"{error.filename} cannot be read: {error.strerror}") from None


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be deleted: {error.strerror}") from None


def _remove_folders(root: Path) -> None:
    """Remove what is an empty folder now; a folder with a new file in it stays."""
    for above, _, _ in os.walk(root, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(above)
