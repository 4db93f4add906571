"""The back end tensorboard."""

from __future__ import annotations

from ludus.registry import find
from ludus.run.logger import Backend
from ludus.run.storage import Storage

IS_FILE = True


def make(storage: Storage) -> Backend:
    backend = find("logger", "tensorboard")
    return backend(backend.Config(kind="tensorboard"), storage)
