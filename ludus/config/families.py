"""Declarations of families: the categories of kinds, counters, lengths and commands that a package adds.

A package of ludus declares them in its `declared.py`, which is found by listing; a plugin calls the same
`declare` when it is imported. No file outside its folder needs to know a family's name.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.config.family_checks import check_family
from ludus.config.registrations import registered_kinds
from ludus.core import counters as core_counters
from ludus.core.errors import LudusError, nearest

Hint = Callable[[str, str, Mapping[str, Any], object], str]
"""Takes an unknown name, the path of the key that stands for it here, the config's data and the intended
value. If the two differ in meaning it returns a sentence, after a space, that says what decides it here, and
the key is not suggested; else an empty string. For an earlier name of the key the sentence is added to the
suggestion."""

Migration = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes the data of a config file, which it may change in place, and returns it in a newer version."""

FormerValue = Callable[[Mapping[str, Any], object], Mapping[str, object]]
"""Takes the config's data and a value that a former key had in its version; returns today's keys, by path,
and their values."""

Finding = tuple[str, str, str]
"""A mark (ok, note or bad), the subject, and the finding."""

_HERE = Path(__file__).parents[1]
# Every package may hold trainers and programs, so none owns these categories.
_TRAINER, _PROGRAM = _OF_ALL = ("trainer", "program")


@dataclass(frozen=True, kw_only=True)
class Family:
    """Declarations of one package or module."""

    name: str
    folder: Path | None
    """Folder of its files; None for a plugin of one file, which has no folders to list."""
    categories: Mapping[str, str]
    """Category of kinds -> subfolder in which each file is a kind."""
    lengths: Mapping[str, str]
    """Config key for the length of a run -> the counter it limits."""
    other_names: Mapping[str, Sequence[str]]
    """Name of a key in other libraries -> possible keys here, each a key of the file or section.key."""
    earlier_names: Mapping[str, str]
    """Name of a key at the top of earlier files -> its current name."""
    former_names: Mapping[str, str]
    """Path of a key in earlier versions, or in a seed of the library -> its current path."""
    former_values: Mapping[str, FormerValue]
    """Path among `former_names` whose values had another form -> the function that converts one."""
    hint: Hint | None
    directions: Mapping[str, str]
    """Name of a metric, or a word in it -> whether lower (min) or higher (max) is better."""
    trainers: str
    """Folder in which each file is a trainer kind, as in `trainer.py`; `programs` holds program kinds."""
    needs: Mapping[str, str]
    """Optional module that the package uses -> what to install."""
    migrations: Mapping[int, Migration]
    """Older version of config files -> the function that migrates this package's keys to the next."""
    renamed: Migration | None
    """Updates keys that were renamed within a version."""
    findings: Callable[[], Iterator[Finding]] | None
    """Yields the findings of `ludus doctor` for this package."""
    run_files: Sequence[str]
    """Files that the package's trainers write into a run directory, `*` for any letters but `/`, and `**` at
    the end for whatever a folder holds."""

    def modules(self, folder: str) -> dict[str, str]:
        """Return the module of each file, or package, in a folder of this package, by its name."""
        return {name: module for name, (module, _) in self._files(folder).items() if name[0] != "_"}

    def kinds(self, category: str, folder: str) -> Iterator[tuple[str, str]]:
        """Yield the kinds of a category in a folder, each with its module.

        A file is a kind by its own name, unless classes in it are registered under others: then it holds
        those. So small kinds share a file, which may also be `folder.py`, in the folder's place.
        """
        if self.folder is None:
            return
        for name, (module, path) in self._files(folder).items():
            registered = registered_kinds(path, category)
            for kind in registered or ([] if name[0] == "_" else [name]):
                yield kind, module
        for alone in (folder, "trainer") if category == _TRAINER else (folder,):
            if (path := (self.folder / alone).with_suffix(".py")).is_file():
                module = ".".join([self.name, *Path(alone).parts])
                yield from ((kind, module) for kind in registered_kinds(path, category))

    def _files(self, folder: str) -> dict[str, tuple[str, Path]]:
        if self.folder is None:
            return {}
        here, parts = self.folder / folder, ".".join([self.name, *Path(folder).parts])
        paths = {file.stem: file for file in here.glob("*.py") if file.stem != "__init__"}
        paths |= {file.parent.name: file for file in here.glob("*/__init__.py")}
        return {name: (f"{parts}.{name}", paths[name]) for name in sorted(paths)}


_ROOMS: dict[str, Family] = {}
_is_listed = False


def declare(
    room: str,
    *,
    categories: Mapping[str, str] | None = None,
    counters: Sequence[str] = (),
    lengths: Mapping[str, str] | None = None,
    other_names: Mapping[str, Sequence[str]] | None = None,
    earlier_names: Mapping[str, str] | None = None,
    former_names: Mapping[str, str] | None = None,
    former_values: Mapping[str, FormerValue] | None = None,
    hint: Hint | None = None,
    directions: Mapping[str, str] | None = None,
    trainers: str = "trainers",
    needs: Mapping[str, str] | None = None,
    migrations: Mapping[int, Migration] | None = None,
    renamed: Migration | None = None,
    findings: Callable[[], Iterator[Finding]] | None = None,
    run_files: Sequence[str] = (),
) -> None:
    """Declare what a package or module adds; `room` is its own `__name__`.

    `categories` maps a category of kinds to a folder of the package: each file in it is a kind, or holds
    those that it registers; `register(category, kind)` adds others. `counters` belong to the trainers defined
    in the package. `lengths` maps a config key to the counter it limits, so that a resume may raise it.
    `directions` maps a metric, by its name or by a word in it, to min if lower is better or max if higher
    is. Each file in the folder `trainers`, or the one named here, is a trainer kind, and so is what
    `trainer.py` registers; each in `programs` is a program with its own command; each in `commands` is a
    command of `ludus`. `needs` maps a module that may be missing to what `pip install` takes. `migrations`
    maps an older version of config files to the function that migrates this package's keys to the next, and
    `renamed` updates renamed keys; both receive the files of every kind, so they check the keys first.
    `former_names` are accepted wherever a config is changed or read, with values converted by
    `former_values`. `earlier_names` serve the command line, `findings` serve `ludus doctor`.
    `run_files` are what its trainers write into a run directory, such as `asked/*.json`: deleted with it.
    """
    if (module := sys.modules.get(room)) is None:
        raise LudusError(f"declare('{room}'): no such module is imported; give it __name__")
    paths = list(getattr(module, "__path__", ()))
    found = Family(
        name=room,
        folder=Path(paths[0]) if paths else None,
        categories=dict(categories or {}),
        lengths=dict(lengths or {}),
        other_names=dict(other_names or {}),
        earlier_names=dict(earlier_names or {}),
        former_names=dict(former_names or {}),
        former_values=dict(former_values or {}),
        hint=hint,
        directions=dict(directions or {}),
        trainers=trainers,
        needs=dict(needs or {}),
        migrations=dict(migrations or {}),
        renamed=renamed,
        findings=findings,
        run_files=tuple(run_files),
    )
    if not room.startswith("ludus."):
        families()
    check_family(found, counters, [*_ROOMS.values()], shared=_OF_ALL)
    core_counters.declare(counters, room)
    _ROOMS[room] = found


def directions() -> dict[str, str]:
    """Return every declared direction, by metric or word."""
    return {metric: one for room in families() for metric, one in room.directions.items()}


def families() -> list[Family]:
    """Return the declarations of every package, those of ludus first."""
    global _is_listed
    if not _is_listed:
        _is_listed = True
        for file in sorted(_HERE.glob("*/declared.py")):
            importlib.import_module(f"ludus.{file.parent.name}.declared")
    return list(_ROOMS.values())


def categories() -> list[str]:
    """Return every declared category of kinds."""
    return [*_OF_ALL, *(category for room in families() for category in room.categories)]


def check_category(category: str) -> None:
    """Raise LudusError, with the nearest name, unless this category is declared."""
    known = categories()
    if category not in known:
        raise LudusError(
            f"no category of kinds is named '{category}'.{nearest(category, known)} Declare your own"
            f" with ludus.declare(__name__, categories={{'{category}': 'a_folder'}})"
        )


def listed(category: str) -> dict[str, str]:
    """Return the module of each kind of a category that is a file in a declared folder."""
    check_category(category)
    found: dict[str, str] = {}
    for room in families():
        own = {**room.categories, _TRAINER: room.trainers, _PROGRAM: "programs"}
        folder = own.get(category)
        for kind, module in room.kinds(category, folder) if folder else ():
            if kind in found:
                raise LudusError(
                    f"the {category} kind '{kind}' is declared by {found[kind]} and by {module}; rename"
                    " the file of the one that is yours"
                )
            found[kind] = module
    return found


def commands() -> dict[str, tuple[str, str]]:
    """Return the package and the module of every command that is a file in a folder `commands`."""
    found: dict[str, tuple[str, str]] = {}
    for room in families():
        for name, module in room.modules("commands").items():
            name = name.replace("_", "-")
            if name in found:
                raise LudusError(
                    f"the command '{name}' is declared by {found[name][0]} and by {room.name}; rename"
                    " the file of the one that is yours"
                )
            found[name] = room.name, module
    return found


def counter_of(key: str) -> str | None:
    """Return the counter that a length key limits, if one is declared."""
    return next((room.lengths[key] for room in families() if key in room.lengths), None)


def migrations(version: int) -> list[Migration]:
    """Return each package's migration from this version of config files to the next."""
    return [room.migrations[version] for room in families() if version in room.migrations]


def renamings() -> list[Migration]:
    """Return the functions that update each package's renamed keys."""
    return [room.renamed for room in families() if room.renamed is not None]


def run_files() -> list[str]:
    """Return the patterns of the files that packages declare to write into a run directory."""
    return [pattern for room in families() for pattern in room.run_files]
