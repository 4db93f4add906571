"""The models that a name may mean: one of the library, or saved weights by their tinker:// path."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ludus.text.models.library import ModelLibrary


class LibraryWithSaved(ModelLibrary):
    """A library in which saved weights are found by their paths too, though they are not listed."""

    def __init__(self, root: str | Path, saved: Callable[[str], Path]) -> None:
        """`saved` returns the directory of a path, or raises LudusError."""
        super().__init__(root)
        self._saved = saved

    def __contains__(self, name: object) -> bool:
        return is_path(name) or super().__contains__(name)

    def directory(self, name: str) -> Path:
        """Return the directory of a model, or of saved weights."""
        return self._saved(name) if is_path(name) else super().directory(name)


def is_path(name: object) -> bool:
    """Return whether a name is the path of saved weights."""
    return isinstance(name, str) and name.startswith("tinker://")
