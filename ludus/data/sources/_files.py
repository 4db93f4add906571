"""Files that a config names: located, named in errors, and identified by a hash of some of their bytes."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Sequence
from pathlib import Path

from ludus.core.errors import ConfigError
from ludus.data.batches.seeded_loader import spread

NUM_SAMPLES = 256
"""The number of pieces of a file, or files of a folder, that are hashed: fast, yet notices other data."""
_SAMPLE_BYTES = 1 << 16


def existing(path: str, *, key: str, folder: bool = False) -> Path:
    """Return the file or folder that a key names; raise ConfigError if there is none."""
    found = Path(path).expanduser()
    what, other = ("folder", "file") if folder else ("file", "folder")
    try:
        if found.is_dir() if folder else found.is_file():
            return found
        is_other = found.exists()
    except OSError as error:
        raise ConfigError(f"'{key}' is {path}, which cannot be read: {error.strerror}") from None
    if is_other:
        raise ConfigError(f"'{key}' is {path}, which is a {other}; give a {what}")
    raise ConfigError(
        f"'{key}' is {path}, but there is no such {what}; a path that does not begin with / is taken"
        f" from the working directory, {os.getcwd()}"
    )


def name_of(path: Path) -> str:
    """Return a data set's name, which appears in the names of saved models."""
    return re.sub(r"[^a-z0-9]+", "_", path.resolve().stem.lower()).strip("_") or "data"


def file_digest(path: Path) -> str:
    """Return a hash of a file's size and of pieces spread over it."""
    out, size = hashlib.sha256(), path.stat().st_size
    out.update(str(size).encode())
    num_pieces = -(-size // _SAMPLE_BYTES)
    with path.open("rb") as file:
        for piece in spread(num_pieces, NUM_SAMPLES):
            file.seek(piece * _SAMPLE_BYTES)
            out.update(file.read(_SAMPLE_BYTES))
    return out.hexdigest()


def folder_digest(names: Sequence[str], sizes: Sequence[int], paths: Sequence[Path]) -> str:
    """Return a hash of the names and sizes of all files, and of the beginnings of some of them."""
    out = hashlib.sha256()
    for name, size in zip(names, sizes, strict=True):
        out.update(f"{name}\0{size}\n".encode(errors="surrogateescape"))
    for path in paths:
        with path.open("rb") as file:
            out.update(file.read(_SAMPLE_BYTES))
    return out.hexdigest()
