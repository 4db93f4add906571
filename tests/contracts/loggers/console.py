"""The back end console."""

from __future__ import annotations

from ludus.registry import find
from ludus.run.logger import Backend
from ludus.run.storage import Storage

IS_FILE = False


def make(storage: Storage) -> Backend:
    backend = find("logger", "console")
    return backend(backend.Config(kind="console"), storage)
