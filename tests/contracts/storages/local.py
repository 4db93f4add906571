"""A directory on the local disk."""

from __future__ import annotations

from pathlib import Path

from ludus.store.local import LocalStorage


def make(path: Path) -> LocalStorage:
    path.mkdir(exist_ok=True)
    return LocalStorage(path)
