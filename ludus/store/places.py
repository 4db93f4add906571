"""Open storages by location: a directory, or a URL such as s3://bucket/runs."""

from __future__ import annotations

import os
from pathlib import Path

from ludus.core.errors import ConfigError
from ludus.store.local import LocalStorage
from ludus.store.storage import Storage

_MARK = "://"


def is_url(place: str | Path) -> bool:
    """Return whether a location has a URL scheme, and so is not a local directory."""
    return _MARK in str(place)


def below(root: str | Path, name: str) -> str:
    """Return the location of this name inside another one."""
    if not is_url(root):
        return str(Path(root) / name)
    scheme, _, path = str(root).partition(_MARK)
    return f"{scheme}{_MARK}{path.strip('/')}/{name}" if path.strip("/") else f"{root}{name}"


def parted(place: str | Path) -> tuple[str, str]:
    """Return the parent of a location, and its name there."""
    if is_url(place):
        scheme, _, path = str(place).partition(_MARK)
        root, _, name = path.strip("/").rpartition("/")
        return f"{scheme}{_MARK}{root}", name
    # A directory given as `.` still has a name.
    whole = Path(place) if Path(place).name not in ("", "..") else Path(os.path.abspath(place))
    return str(whole.parent), whole.name


def open_storage(place: str | Path) -> Storage:
    """Return the storage at a location, without creating anything."""
    if is_url(place):
        # Imported here, so that only a run in an object store pays for it.
        from ludus.store.cloud.remote import RemoteStorage

        return RemoteStorage(str(place))
    return LocalStorage(place)


def make_storage(place: object = None) -> Storage:
    """Return the storage at a location, creating a local directory if necessary."""
    if not isinstance(place, str | Path) or not str(place):
        raise ConfigError(
            f"Storage was given {place!r}; give it a place: a directory, or a URL such as s3://bucket/runs"
        )
    found = open_storage(place)
    if isinstance(found, LocalStorage):
        found.make_root()
    return found


def runs_in(root: str | Path) -> list[str]:
    """Return the location of every run in this one, sorted by name."""
    if is_url(root):
        there = open_storage(root)
        return [below(root, name) for name in there.names("") if there.exists(f"{name}/run.json")]
    path = Path(root)
    found = sorted(path.iterdir()) if path.is_dir() else []
    return [str(one) for one in found if os.path.isfile(one / "run.json")]


def named_run(run: str) -> str:
    """Return runs/NAME for the bare name of a run there; any other text as it is."""
    is_name = Path(run).name == run and not Path(run).exists()
    there = Path("runs", run)
    return str(there) if is_name and (there / "run.json").is_file() else run
