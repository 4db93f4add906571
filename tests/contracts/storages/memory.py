"""Objects in the memory of this process, through fsspec."""

from __future__ import annotations

from pathlib import Path

from ludus.store.cloud.remote import RemoteStorage


def make(path: Path) -> RemoteStorage:
    return RemoteStorage(f"memory:/{path}")
