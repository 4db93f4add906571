"""The directories of saved weights by their tinker:// paths, and a library of models that finds them too."""

from __future__ import annotations

import re
from pathlib import Path

from ludus.text.models.library import LibraryEntry, ModelLibrary
from ludus.text.server.tinker.requests import RequestRefused

NOTE = "ludus_tinker.json"
"""The file that is written last into a directory of saved weights."""
EPHEMERAL = "ephemeral-"
"""How the names begin that are given to unnamed weights."""
_PATH = re.compile(
    r"tinker://([A-Za-z0-9_][A-Za-z0-9_:.-]*)/(weights|sampler_weights)/([A-Za-z0-9_][A-Za-z0-9._-]*)"
)


def find_saved(runs: Path, path: str) -> Path:
    """Return the directory of a path below that of all runs; raise RequestRefused if there is none."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise RequestRefused(
            f"{path!r} is no path of saved weights, tinker://MODEL_ID/weights/NAME"
        )
    model_id, kind, name = found.groups()
    directory = runs / folder_of(model_id) / kind / name
    if not (directory / NOTE).is_file():
        is_unnamed = name.startswith(EPHEMERAL)
        hint = (
            "; unnamed weights are kept for the 8 last used samplers of a model"
            if is_unnamed
            else ""
        )
        raise RequestRefused(f"there are no saved weights {path}{hint}", status=404)
    return directory


def folder_of(model_id: str) -> str:
    """Return the name of a run's directory."""
    return model_id.replace(":", ".")


class LibraryWithSaved(ModelLibrary):
    """A library of models in which saved weights are found by their paths, though they are not listed."""

    def __init__(self, root: str | Path, runs: Path) -> None:
        super().__init__(root)
        self._runs = runs

    def _find(self, name: str) -> LibraryEntry | None:
        if not name.startswith("tinker://"):
            return super()._find(name)
        try:
            return LibraryEntry(name, find_saved(self._runs, name), created_at=0, origin="")
        except RequestRefused:
            return None
