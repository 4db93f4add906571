"""Output files of commands: ludus never overwrites what it did not write.

An output is refused unless its path is free, an empty directory, or holds what ludus wrote there
before, and nothing else.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ludus.core.errors import StorageError
from ludus.store.files import open_plain, sync_directory, sync_file
from ludus.store.storage import is_log_name

IsOurs = Callable[[Path], bool]
"""Returns whether ludus wrote all of a file or directory, as an output of the same kind."""

_OF_A_RUN = {"checkpoints", "models", "segments", "events", "journals"}
_OF_A_RUN |= {"run.json", "config.yaml", "LOCK"}
_TEMPORARY = ".tmp-"


def check_file(path: Path, is_ours: IsOurs, *, what: str) -> None:
    """Raise StorageError unless `what`, such as "the film", may be written to this file."""
    _check_place(path)
    if path.is_dir():
        raise StorageError(f"{path} is a directory; name the file that {what} is written to")
    if path.exists() and not (path.is_file() and is_ours(path)):
        raise StorageError(
            f"{path} exists and was not written by ludus as {what}; move it, or choose another name"
        )


def check_directory(path: Path, is_ours: IsOurs, *, what: str) -> None:
    """Raise StorageError unless `what`, such as "a policy", may be written to this directory."""
    _check_place(path)
    if not path.exists():
        return
    if not path.is_dir():
        raise StorageError(f"{path} is a file; {what} is written to a directory of its own")
    with _storage_errors(path):
        names = sorted(os.listdir(path))
    if names and not is_ours(path):
        raise StorageError(
            f"{path} holds {names[0]!r}, and is not {what} that ludus wrote, with nothing else in it;"
            " choose a name that is not taken yet"
        )


def _check_place(path: Path) -> None:
    """Refuse a link, a file that belongs to a run, and a path that cannot be written."""
    # A link may lead anywhere, and its target is not what the user named.
    if path.is_symlink():
        raise StorageError(f"{path} is a link; give the place that it leads to")
    whole = Path(os.path.abspath(path))
    for parent in whole.parents:
        name = whole.relative_to(parent).parts[0]
        is_kept = name in _OF_A_RUN or is_log_name(name)
        if is_kept and (parent / "run.json").is_file():
            raise StorageError(
                f"{path} lies in what the run {parent} itself keeps; choose another place"
            )
    there = next(parent for parent in whole.parents if os.path.lexists(parent))
    if not there.is_dir():
        raise StorageError(f"{path} cannot be written: {there} is not a directory")
    if not os.access(whole if whole.is_dir() else there, os.W_OK | os.X_OK):
        raise StorageError(f"{path} cannot be written: no permission to write in {there}")


def write_file(path: Path, data: bytes, is_ours: IsOurs, *, what: str) -> None:
    """Write a whole file atomically: a crash leaves the old one or the new one, never a part."""
    check_file(path, is_ours, what=what)
    with _storage_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = _write_beside(path, data)
        try:
            # Making the data may have taken minutes; the path may have been taken meanwhile.
            check_file(path, is_ours, what=what)
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_directory(path.parent)


def write_directory(path: Path, files: Mapping[str, bytes], is_ours: IsOurs, *, what: str) -> None:
    """Write these files to a directory, each atomically; earlier output of ludus is replaced.

    An existing directory is kept, because it may be someone's working directory.
    """
    check_directory(path, is_ours, what=what)
    is_new = not path.exists()
    temporaries: dict[str, Path] = {}
    with _storage_errors(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
            for left_behind in sorted(path.iterdir()):
                if is_temporary(left_behind.name, files):
                    left_behind.unlink()
            for name, data in files.items():
                temporaries[name] = _write_beside(path / name, data)
            for name, temporary in temporaries.items():
                temporary.replace(path / name)
        except BaseException:
            for temporary in temporaries.values():
                temporary.unlink(missing_ok=True)
            if is_new:
                with contextlib.suppress(OSError):
                    path.rmdir()
            raise
        sync_directory(path)
        sync_directory(path.parent)


def is_temporary(name: str, files: Mapping[str, bytes] | tuple[str, ...]) -> bool:
    """Return whether this is the name of a temporary file that a killed writer of these files left."""
    return _TEMPORARY in name and name.split(_TEMPORARY)[0] in files


def head_of(path: Path, num_bytes: int) -> bytes:
    """Return the first bytes of a regular file; empty if it cannot be read."""
    with contextlib.suppress(StorageError, OSError), open_plain(path) as file:
        return file.read(num_bytes)
    return b""


def tail_of(path: Path, num_bytes: int) -> bytes:
    """Return the last bytes of a regular file; empty if it cannot be read."""
    with contextlib.suppress(StorageError, OSError), open_plain(path) as file:
        file.seek(max(0, os.fstat(file.fileno()).st_size - num_bytes))
        return file.read(num_bytes)
    return b""


def _write_beside(path: Path, data: bytes) -> Path:
    """Write the data durably to a temporary file in the same directory, and return its path."""
    descriptor, name = tempfile.mkstemp(prefix=f"{path.name}{_TEMPORARY}", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
        # mkstemp makes private files: a new file gets the usual mode, an old one keeps its own.
        temporary.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask())
        sync_file(temporary)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return temporary


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextlib.contextmanager
def _storage_errors(path: Path) -> Iterator[None]:
    """Turn a system error into a StorageError."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
