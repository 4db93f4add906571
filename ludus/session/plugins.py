"""Load the plugins that a run was begun with again: unchanged files that this user has given before."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.config import registry
from ludus.core.errors import RunError
from ludus.session.fingerprint import source_digest, source_hash
from ludus.session.own_plugins import own_plugins, remember
from ludus.store.directory import script_name
from ludus.store.local import LocalStorage
from ludus.store.storage import Storage

KEY = "plugin_files"
"""Field of run.json: the file of each plugin and its digest."""


def code_for_note() -> dict[str, Any]:
    """Return the fields of run.json about the script that runs and the plugins that are loaded.

    The user has given these plugins, and they are remembered as such.
    """
    names = list(registry.loaded_plugins)
    remember(names)
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

    What a run holds is data, and may come from anywhere: run.json says which plugins it had, and the user's
    own list which files may be loaded. Nothing is imported from inside the run's directory.
    """
    files, changes = note.get(KEY, {}), []
    if not _are_files(files):
        raise RunError(
            f"{storage.place}/run.json does not say which plugins this run had; restore it"
        )
    remember(registry.loaded_plugins)
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
    """Import a plugin from a file that this user has given under its name, if the run had the same."""
    path = Path(noted["path"])
    own = [one for one in own_plugins() if one.name == name]
    known = {one.digest for one in own}
    # No other file is even read: a run may name any of this machine.
    is_own = str(path.resolve()) in {one.path for one in own}
    places = [*([path] if is_own else []), *(_elsewhere(name) if own else [])]
    there = {one: source_digest(one) for one in places if one.is_file()}
    same = [one for one, digest in there.items() if digest[:16] == noted["digest"]]
    ready = [one for one in same if there[one] in known and not _is_inside(one, storage)]
    if ready:
        _import(name, ready[0])
        return []
    if path.is_file() and _is_inside(path, storage):
        return [
            f"the plugin {name} lies inside {storage.place}, and code is never loaded from there; copy it"
            f" to another place, and give it: --plugin {path.name}"
        ]
    if there and not same:
        file = next(iter(there))
        return [
            f"the plugin {name} ({file}) has changed since {storage.place} began; give it to use it as it"
            f" is now: --plugin {_words(name, file)}"
        ]
    if found := [one for one in (path, *same) if one.is_file()]:
        return [
            f"the plugin {name} ({found[0]}) of {storage.place} is code that you have not given before, and a"
            f" run cannot vouch for it; give it if you trust it: --plugin {_words(name, found[0])}"
        ]
    return [
        f"the plugin {name} of {storage.place} is no longer at {path}; give it where it is now: --plugin"
        f" {path.name if '.' not in name else name}"
    ]


def _words(name: str, file: Path) -> str:
    """Return how `--plugin` names it: modules in packages by name, others by file."""
    return name if "." in name or file.name == "__init__.py" else str(file)


def _is_inside(file: Path, storage: Storage) -> bool:
    inside = Path(storage.place).resolve()
    return isinstance(storage, LocalStorage) and file.resolve().is_relative_to(inside)


def _elsewhere(name: str) -> list[Path]:
    """Return the files that a module of this name may have on the import path; nothing is imported."""
    inner = Path(*name.split("."))
    roots = [Path(root or ".") for root in sys.path]
    return [
        place for root in roots for place in (root / f"{inner}.py", root / inner / "__init__.py")
    ]


def _import(name: str, file: Path) -> None:
    """Import a module from its file, whose root comes first on the import path: another may have its name."""
    depth = name.count(".") + (file.name == "__init__.py")
    root = str(file.resolve().parents[depth])
    is_there = root in sys.path
    sys.path.insert(0, root)
    try:
        registry.load_plugin(name)
    finally:
        if is_there:
            sys.path.remove(root)
