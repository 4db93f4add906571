"""The back end jsonl."""

from __future__ import annotations

from ludus.config.registry import find
from ludus.session.logger import Backend
from ludus.store.local import LocalStorage

IS_FILE = True


def make(storage: LocalStorage) -> Backend:
    backend = find("logger", "jsonl")
    return backend(backend.Config(kind="jsonl"), storage)
