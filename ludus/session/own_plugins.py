"""Remember the plugin files that this user has given, so that a run can have them loaded again.

A run directory may come from anywhere, so what it says about its plugins proves nothing. The list lies
outside all runs, in XDG_STATE_HOME or ~/.local/state, and only its user can write it. Where it cannot be
written, or two processes write it at once, a plugin has to be named again, and nothing else happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from ludus.core.errors import CheckpointError, StorageError
from ludus.session.fingerprint import source_digest
from ludus.store.files import open_plain
from ludus.store.strict_json import parse_json

_MAX_FILES, _MAX_BYTES = 1000, 1 << 20
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class OwnPlugin(NamedTuple):
    """A file that the user has given as a plugin: its module, its path and the sha256 of its source."""

    name: str
    path: str
    digest: str


def own_plugins() -> list[OwnPlugin]:
    """Return the files that this user has given, oldest first; none if the list is damaged or another's."""
    try:
        with open_plain(_place()) as file:
            found = os.fstat(file.fileno())
            if found.st_uid != os.getuid() or found.st_mode & _WRITABLE_BY_OTHERS:
                return []
            tree = parse_json(file.read(_MAX_BYTES), source="plugins.json")
    except (CheckpointError, StorageError, OSError, RuntimeError):
        return []
    lines = tree.get("plugins") if isinstance(tree, dict) else None
    return [
        OwnPlugin(*line)
        for line in (lines if isinstance(lines, list) else [])
        if isinstance(line, list) and len(line) == 3 and all(isinstance(one, str) for one in line)
    ]


def remember(names: Iterable[str]) -> None:
    """Add the files of these loaded plugins to the list."""
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    given = [
        OwnPlugin(name, str(Path(file).resolve()), source_digest(Path(file)))
        for name, file in files.items()
        if file is not None and Path(file).is_file()
    ]
    if not given:
        return
    known = own_plugins()
    if new := [one for one in given if one not in known]:
        with contextlib.suppress(OSError, RuntimeError):
            _write([*known, *new][-_MAX_FILES:])


def _place() -> Path:
    """Return the path of the list; RuntimeError if this user has no home."""
    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    # The rule of XDG: a relative path is ignored.
    folder = given if given.is_absolute() else Path.home() / ".local" / "state"
    return folder / "ludus" / "plugins.json"


def _write(plugins: list[OwnPlugin]) -> None:
    """Replace the list in one step."""
    place = _place()
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # mkstemp makes a file that only its owner can read and write.
    descriptor, scratch = tempfile.mkstemp(dir=place.parent, prefix=".", suffix=".part")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump({"plugins": plugins}, file, indent=1)
        os.replace(scratch, place)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(scratch)
