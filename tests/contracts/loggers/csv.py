"""The back end csv."""

from __future__ import annotations

from ludus.config.registry import find
from ludus.session.logger import Backend
from ludus.store.local import LocalStorage

IS_FILE = True


def make(storage: LocalStorage) -> Backend:
    backend = find("logger", "csv")
    return backend(backend.Config(kind="csv"), storage)
