"""A directory on the local disk."""

from __future__ import annotations

from pathlib import Path

from ludus.store.storage import Storage


def make(path: Path) -> Storage:
    path.mkdir(exist_ok=True)
    return Storage(path)
