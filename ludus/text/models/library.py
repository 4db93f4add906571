"""ModelLibrary: the models of a server, each by a name such as `tiny` or `ft:tiny:org:suffix:id`.

root/<directory>/   the model's files, and ludus_model.json: its name and when it was added
"""

from __future__ import annotations

import hashlib
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from ludus.core.errors import ConfigError, nearest
from ludus.store.files import sync_file, write_durably
from ludus.store.local import LocalStorage
from ludus.store.strict_json import dump_json
from ludus.text.models.language_model import (
    LanguageModel,
    check_directory,
    load_model,
    read_json,
    write_files,
)

NOTE = "ludus_model.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/@+-]{0,199}")
_UNSAFE = re.compile(r"[^a-z0-9-]")


@dataclass(frozen=True)
class LibraryEntry:
    """A model of a library."""

    name: str
    directory: Path
    created_at: int
    """When it was added, in seconds since 1970."""
    origin: str
    """The model it was tuned from; empty for one that was not tuned here."""


class ModelLibrary:
    """A directory of models; several processes may read it, and add to it, at once."""

    def __init__(self, root: str | Path, *, clock: Callable[[], float] = time.time) -> None:
        self.root = Path(root)
        self._storage = LocalStorage(self.root)
        self._clock = clock

    def entries(self) -> list[LibraryEntry]:
        """Return all models, sorted by name."""
        found = []
        for folder in self._storage.names(""):
            directory = self.root / folder
            # What is being written or deleted has a name that no model has.
            if "." not in folder and (directory / NOTE).is_file():
                found.append(_entry(directory))
        return sorted(found, key=lambda one: one.name)

    def names(self) -> list[str]:
        """Return the names of all models, sorted."""
        return [entry.name for entry in self.entries()]

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def entry(self, name: str) -> LibraryEntry:
        """Return a model's entry; raise ConfigError if there is no model of this name."""
        found = self._find(name)
        if found is None:
            known = self.names()
            hint = nearest(name, known) if known else " There is no model yet."
            raise ConfigError(f"there is no model '{name}'.{hint}")
        return found

    def directory(self, name: str) -> Path:
        """Return the directory of a model."""
        return self.entry(name).directory

    def load(
        self, name: str, *, device: str | torch.device = "cpu", dtype: torch.dtype | None = None
    ) -> LanguageModel:
        """Return a model, loaded."""
        return load_model(self.directory(name), name=name, device=device, dtype=dtype)

    def add(self, name: str, from_directory: str | Path, *, origin: str = "") -> Path:
        """Copy a model's directory into the library under a name, and return its directory.

        The model appears at once, whole. A name is never given to a second model.
        """
        source = Path(from_directory)
        check_directory(source)
        self.check_free(name)

        def fill(folder: Path) -> None:
            for path in sorted(source.iterdir()):
                if path.is_file() and path.name != NOTE:
                    shutil.copyfile(path, folder / path.name)
                    sync_file(folder / path.name)
            self._write_note(folder, name, origin)

        return self._commit(name, fill)

    def add_model(self, model: LanguageModel, *, origin: str = "") -> Path:
        """Save a model into the library under its name, and return its directory."""
        self.check_free(model.name)

        def fill(folder: Path) -> None:
            write_files(model, folder)
            self._write_note(folder, model.name, origin)

        return self._commit(model.name, fill)

    def delete(self, name: str) -> None:
        """Delete a model."""
        self._storage.remove(self.directory(name).name)

    def check_free(self, name: str) -> None:
        """Raise ConfigError unless a model of this name can be added."""
        if not _NAME.fullmatch(name):
            raise ConfigError(
                f"a model cannot be named {name[:80]!r}; use up to 200 letters, digits and . _ : / @ + -,"
                " with a letter or digit first"
            )
        if name in self:
            raise ConfigError(
                f"there is a model '{name}' already; delete it, or choose another name"
            )

    def _find(self, name: str) -> LibraryEntry | None:
        directory = self.root / folder_of(name)
        return _entry(directory) if (directory / NOTE).is_file() else None

    def _commit(self, name: str, fill: Callable[[Path], None]) -> Path:
        self._storage.make_root()
        folder = folder_of(name)
        self._storage.commit(folder, fill, step=lambda point: None)
        return self.root / folder

    def _write_note(self, folder: Path, name: str, origin: str) -> None:
        note = {"name": name, "created_at": int(self._clock()), "origin": origin}
        write_durably(folder / NOTE, [dump_json(note)])


def folder_of(name: str) -> str:
    """Return the directory name of a model: readable, and different for every name on any file system."""
    readable = _UNSAFE.sub("-", name.lower())[:80]
    return f"{readable}-{hashlib.sha256(name.encode()).hexdigest()[:10]}"


def _entry(directory: Path) -> LibraryEntry:
    note = read_json(directory / NOTE)
    return LibraryEntry(
        str(note["name"]), directory, int(note["created_at"]), str(note.get("origin", ""))
    )
