"""The back end console."""

from __future__ import annotations

from ludus.config.registry import find
from ludus.session.logger import Backend
from ludus.store.local import LocalStorage

IS_FILE = False


def make(storage: LocalStorage) -> Backend:
    backend = find("logger", "console")
    return backend(backend.Config(kind="console"), storage)
