"""Registry: maps the kinds named in a config to classes; nothing that a config names is ever imported.

Kinds are found by listing the folders that packages declare (`ludus/config/families.py`):
`ludus/supervised/trainers/supervised.py` holds the trainer kind `supervised`. Other packages offer kinds
through the entry-point group `ludus.plugins`, a user's own module through `--plugin my_module`; importing
either runs its `register_*` decorators.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import sys
import traceback
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from ludus.config import families
from ludus.core.errors import ConfigError, LudusError, nearest

C = TypeVar("C", bound=type[Any])

_HERE = Path(__file__).parents[1]
_REGISTERED: defaultdict[str, dict[str, type[Any]]] = defaultdict(dict)
_EXAMPLES: dict[str, Path] = {}
_SECTIONS: dict[str, str] = {}
_SECTIONS_FOLDER = "sections"
_loaded_entry_points = False
loaded_plugins: list[str] = []
"""Modules that `load_plugin` has imported, for child processes to load as well."""


def register(category: str, kind: str) -> Callable[[C], C]:
    """Return a decorator that registers a class under this kind of a declared category."""
    families.check_category(category)

    def remember(cls: C) -> C:
        known = _REGISTERED[category].get(kind)
        owner = f"{known.__module__}.{known.__qualname__}" if known else None
        # A built-in kind keeps its name even before its module is imported.
        if known is None and families.listed(category).get(kind, cls.__module__) != cls.__module__:
            owner = families.listed(category)[kind]
        if owner is not None and owner != f"{cls.__module__}.{cls.__qualname__}":
            raise LudusError(
                f"the {category} kind '{kind}' is taken by {owner}; register yours under another name"
            )
        _REGISTERED[category][kind] = cls
        cls.kind = kind
        return cls

    return remember


def register_trainer(kind: str, *, example: str | Path | None = None) -> Callable[[C], C]:
    """Register a trainer; `example` is its complete YAML, for `ludus new` and `ludus.example`.

    A relative path starts at the folder of the file that defines the trainer.
    """

    def remember(cls: C) -> C:
        _note_sections(cls)
        register("trainer", kind)(cls)
        if example is not None:
            path = Path(example)
            place = path if path.is_absolute() else Path(inspect.getfile(cls)).parent / path
            _EXAMPLES[kind] = place
        return cls

    return remember


def _note_sections(trainer: type[Any]) -> None:
    """Raise LudusError if a key of this trainer's settings belongs to another family or to ludus."""
    fields = getattr(getattr(trainer, "Config", None), "model_fields", {})
    settings = getattr(fields.get("settings"), "annotation", None)
    if not isinstance(settings, type):
        return
    for base in reversed(settings.__mro__):
        words = base.__module__.split(".")
        family = ".".join(words[:2]) if words[0] == "ludus" else words[0]
        for name in vars(base).get("__annotations__", {}):
            owner = _SECTIONS.setdefault(name, family)
            if owner != family and name in getattr(settings, "model_fields", ()):
                raise LudusError(
                    f"the settings section '{name}' is declared by {owner} and by {family}; rename the"
                    " one that is yours"
                )


def find(category: str, kind: str) -> type[Any]:
    """Return the class of this kind, importing its module if it is not yet loaded."""
    registered = _REGISTERED[category]
    if kind not in registered and kind in families.listed(category):
        _import_kind(category, kind)
    if kind not in registered:
        load_installed()
    if kind not in registered:
        # Even if another name is near: a user's kind `a2c` is not a misspelt `sac`.
        raise ConfigError(
            f"no {category} kind is named '{kind}'.{nearest(kind, kinds(category))}{_of_plugins(category)}"
        )
    return registered[kind]


def _of_plugins(category: str) -> str:
    """Return a sentence, after a space, about where a user's own kind would be found."""
    if not loaded_plugins:
        return " A kind of your own is found with --plugin its_module."
    where = "in that module, or in a file of a folder that it declares"
    if category == "trainer":
        where = "in that module, or in its package in trainer.py or a file of trainers/"
    return f" --plugin {' and '.join(loaded_plugins)} has none of that name: register it {where}."


def _import_kind(category: str, kind: str) -> None:
    """Import the file of a kind, which registers it."""
    try:
        importlib.import_module(families.listed(category)[kind])
    except LudusError:
        raise
    except Exception as error:
        raise not_importable(f"the {category} kind '{kind}'", error) from error
    if kind not in _REGISTERED[category]:
        module = families.listed(category)[kind]
        own = [name for name, cls in _REGISTERED[category].items() if cls.__module__ == module]
        what = f"registers {' and '.join(map(repr, own))}" if own else "registers nothing"
        raise ConfigError(
            f"{module} should hold the {category} kind '{kind}', but {what}; a file of kinds is named"
            " after the kind that it registers"
        )


def is_program(kind: str) -> bool:
    """Return whether a config file of this kind is a program's; installed plugins are loaded last."""
    for category in ("trainer", "program"):
        if kind in _REGISTERED[category] or kind in families.listed(category):
            return category == "program"
    return kind in kinds("program")


def classes_of(kind: str) -> list[type[Any]]:
    """Return the classes registered under this kind in any category."""
    return [known[kind] for known in _REGISTERED.values() if kind in known]


def kinds(category: str) -> list[str]:
    """Return every known kind of this category, without importing the built-in ones."""
    load_installed()
    return sorted({*families.listed(category), *_REGISTERED[category]})


def example_path(name: str) -> Path:
    """Return the path of a complete file: the example of a trainer kind, or another that ludus ships."""
    shipped = _shipped()
    if name not in {*shipped, *_EXAMPLES}:
        load_installed()
        if name in families.listed("trainer"):
            find("trainer", name)
    path = _EXAMPLES.get(name)
    if path is not None and path.is_file():
        return path
    if name in shipped:
        return shipped[name]
    known = {*shipped, *kinds("trainer")}
    if name not in known:
        raise ConfigError(f"no trainer kind or file is named '{name}'.{nearest(name, known)}")
    if path is not None:
        raise ConfigError(
            f"the example file of the trainer kind '{name}' is missing: {path}; a relative path starts at the"
            " folder of the trainer's file"
        )
    raise ConfigError(
        f"the trainer kind '{name}' has no example file; register it with example='{name}.yaml'"
    )


def example_files() -> dict[str, Path | None]:
    """Return the file of every name that `example_path` knows; None for a kind without one."""
    shipped, known = _shipped(), kinds("trainer")
    for kind in known:
        if kind not in {*shipped, *_EXAMPLES}:
            # Importing a plugin's module registers its example.
            find("trainer", kind)
    own = {kind: path for kind, path in _EXAMPLES.items() if path.is_file()}
    return {**dict.fromkeys(known), **shipped, **own}


def _shipped() -> dict[str, Path]:
    """Return every config file that ludus ships, by its name; those of programs are in folders."""
    folders = [_HERE.parent / "configs", _HERE / "configs"]
    return {
        path.stem: path
        for folder in folders
        for path in sorted([*folder.glob("*.yaml"), *folder.glob("*/*.yaml")])
        if path.parent.name != _SECTIONS_FOLDER
    }


def shipped_names() -> list[str]:
    """Return the name of every complete file that `example_path` knows, without importing anything."""
    return sorted({*_shipped(), *_EXAMPLES})


def section_files() -> dict[str, Path]:
    """Return the file of presets of every category of sections that has one."""
    folders = [_HERE.parent / "configs", _HERE / "configs"]
    return {
        path.stem: path for folder in folders for path in folder.glob(f"{_SECTIONS_FOLDER}/*.yaml")
    }


def load_plugin(module: str) -> None:
    """Import a user's module, so that its kinds are registered: `my_plugin`, or the file `./my_plugin.py`.

    The folder of such a file is added to the import path, as Python does for a script.
    """
    given, file = module, Path(module).absolute() if module.endswith(".py") else None
    if file is not None:
        module = _module_of(file, given)
    if not all(word.isidentifier() for word in module.split(".")):
        raise ConfigError(
            f"--plugin {given}: not the name of a module; give a dotted name, or the path of a file ending in"
            " .py"
        )
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise ConfigError(
                f"--plugin {given}: no such module; give a dotted name that Python can import from here, or"
                " the path of a file ending in .py"
            ) from None
        raise not_importable(f"--plugin {given}", error) from error
    except LudusError:
        raise
    except Exception as error:
        raise not_importable(f"--plugin {given}", error) from error
    place = getattr(found, "__file__", None)
    if file is not None and (place is None or Path(place).resolve() != file.resolve()):
        raise ConfigError(
            f"--plugin {given}: another module is named {module} ({place or 'built in'}); rename the file"
        )
    if module not in loaded_plugins:
        loaded_plugins.append(module)


def _module_of(file: Path, given: str) -> str:
    """Return the name of the module in a file, whose folder is added to the import path."""
    if not file.is_file():
        raise ConfigError(f"--plugin {given}: no such file")
    folder = str(file.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    return file.stem


def not_importable(what: str, error: Exception) -> LudusError:
    """Return an error that says in one sentence why a module could not be imported, and where."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    place = "" if isinstance(error, SyntaxError) else f" ({last.filename}, line {last.lineno})"
    return LudusError(f"{what}: cannot be imported: {type(error).__name__}: {error}{place}")


class TrainerType(str):
    """The name of a registered trainer kind; `TrainerType.names()` lists them all."""

    def __new__(cls, kind: str) -> TrainerType:
        """Raise ConfigError for a kind that is not registered."""
        if kind not in kinds("trainer"):
            raise ConfigError(f"no trainer is named '{kind}'.{nearest(kind, kinds('trainer'))}")
        return super().__new__(cls, kind)

    @staticmethod
    def names() -> list[str]:
        """Return every known trainer kind."""
        return kinds("trainer")


def load_installed() -> None:
    """Import the plugins of installed packages, from the entry-point group `ludus.plugins`."""
    global _loaded_entry_points
    if _loaded_entry_points:
        return
    _loaded_entry_points = True
    for entry in importlib.metadata.entry_points(group="ludus.plugins"):
        try:
            entry.load()
        except Exception as error:
            # The next caller must get the error too, not half of the kinds.
            _loaded_entry_points = False
            if isinstance(error, LudusError):
                raise
            raise not_importable(f"the installed plugin {entry.value}", error) from error
