"""Delete the temporary files of killed writers from a run directory, without touching the user's files."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from ludus.core.errors import StorageError

# By folder, the names of unfinished files and of those about to be deleted.
_NAMES = {
    "": re.compile(
        r"(config\.yaml|run\.json|tags\.json|report\.html|play\.gif|policy)\.(tmp|trash)-[0-9]+"
    ),
    "checkpoints": re.compile(r"[0-9]{10}\.(tmp|trash)-[0-9]+"),
    "models": re.compile(r".+\.(tmp|trash)-[0-9]+"),
    "segments": re.compile(r"new\.tmp-[0-9]+"),
    "segments-copy": re.compile(r"new\.tmp-[0-9]+"),
}
_OF_A_MODEL = {"weights.safetensors", "model.json"}


def remove_leftovers(root: Path) -> None:
    """Delete the files that crashed writers left behind, and nothing with another name."""
    for name, pattern in _NAMES.items():
        folder = root / name
        if folder.is_symlink() or not folder.is_dir():
            continue
        for path in sorted(folder.iterdir()):
            if not path.is_symlink() and pattern.fullmatch(path.name):
                _remove(path, is_model=name == "models")


def _remove(path: Path, *, is_model: bool) -> None:
    if is_model and not _is_part_of_model(path):
        return
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
        return
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise StorageError(f"{path} cannot be removed: {error.strerror}") from error


def _is_part_of_model(path: Path) -> bool:
    # A model may have any name, but it is a directory of these two files.
    return path.is_dir() and {file.name for file in path.iterdir()} <= _OF_A_MODEL
