"""Load the plugins that a run was begun with again, if their files are still those that it had."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.config import registry
from ludus.core.errors import RunError
from ludus.session.fingerprint import source_hash
from ludus.store.directory import script_name
from ludus.store.local import LocalStorage
from ludus.store.storage import Storage

KEY = "plugin_files"
"""Field of run.json: the file of each plugin and its digest."""


def code_for_note() -> dict[str, Any]:
    """Return the fields of run.json about the script that runs and the plugins that are loaded."""
    names = list(registry.loaded_plugins)
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    return {
        "script": script_name(),
        "plugins": names,
        KEY: {
            name: {"path": str(Path(file).resolve()), "digest": source_hash(Path(file))}
            for name, file in files.items()
            if file is not None
        },
    }


def load_again(storage: Storage, note: Mapping[str, Any]) -> list[str]:
    """Load the plugins named in this run.json, and return a sentence for each that was not, or has changed.

    A plugin is imported only if its file has the digest that is noted, and never from inside the run's own
    directory: what a run holds is data, and may come from anywhere.
    """
    files, changes = note.get(KEY, {}), []
    if not _are_files(files):
        raise RunError(
            f"{storage.place}/run.json does not say which plugins this run had; restore it"
        )
    for name in note.get("plugins", ()):
        noted = files.get(name)
        if name in registry.loaded_plugins:
            changes += _changed_since(name, noted, storage)
        elif noted is not None:
            changes += _load(name, noted, storage)
    return changes


def _are_files(files: object) -> bool:
    return isinstance(files, dict) and all(
        isinstance(one, dict)
        and isinstance(one.get("path"), str)
        and isinstance(one.get("digest"), str)
        for one in files.values()
    )


def _changed_since(name: str, noted: Mapping[str, str] | None, storage: Storage) -> list[str]:
    """Return a sentence if a plugin that is loaded already is not what the run began with."""
    file = getattr(sys.modules.get(name), "__file__", None)
    if noted is None or file is None or source_hash(Path(file)) == noted["digest"]:
        return []
    return [f"the plugin {name} ({file}) has changed since {storage.place} began"]


def _load(name: str, noted: Mapping[str, str], storage: Storage) -> list[str]:
    path = Path(noted["path"])
    places = [path, *_elsewhere(name)]
    there = [one for one in places if one.is_file()]
    same = [one for one in there if source_hash(one) == noted["digest"]]
    if same:
        if isinstance(storage, LocalStorage) and _is_inside(same[0], storage):
            return [
                f"the plugin {name} lies inside {storage.place}, and code is never loaded from there; copy it"
                f" to another place, and give it: --plugin {path.name}"
            ]
        _import(name, same[0])
        return []
    if there:
        return [
            f"the plugin {name} ({there[0]}) has changed since {storage.place} began; give it to use it as it"
            f" is now: --plugin {_words(name, there[0])}"
        ]
    return [
        f"the plugin {name} of {storage.place} is no longer at {path}; give it where it is now: --plugin"
        f" {path.name if '.' not in name else name}"
    ]


def _words(name: str, file: Path) -> str:
    """Return how `--plugin` names it: modules in packages by name, others by file."""
    return name if "." in name or file.name == "__init__.py" else str(file)


def _is_inside(file: Path, storage: LocalStorage) -> bool:
    return file.resolve().is_relative_to(Path(storage.place).resolve())


def _elsewhere(name: str) -> list[Path]:
    """Return the files that a module of this name may have on the import path; nothing is imported."""
    inner = Path(*name.split("."))
    roots = [Path(root or ".") for root in sys.path]
    return [
        place for root in roots for place in (root / f"{inner}.py", root / inner / "__init__.py")
    ]


def _import(name: str, file: Path) -> None:
    """Import a module from its file, whose root is added to the import path."""
    depth = name.count(".") + (file.name == "__init__.py")
    root = str(file.resolve().parents[depth])
    if root not in sys.path:
        sys.path.insert(0, root)
    registry.load_plugin(name)
