"""Commands of families: a file in a family's folder `commands` is a command of `ludus`.

The file `duel.py` has a function `duel`, with typer's annotations, whose docstring is the help.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any

import typer

from ludus.config import families, registry
from ludus.core.errors import LudusError


def names(own: Iterable[str]) -> list[str]:
    """Return the commands of families; raise LudusError if one has the name of a ludus command."""
    found = _listed(own)
    return sorted(found, key=lambda name: (found[name][0], name))


def find(name: str, own: Iterable[str]) -> Any:
    """Return a family's command of this name, or None."""
    found = _listed(own)
    if name not in found:
        registry.load_installed()
        found = _listed(own)
    return _command(name, *found[name]) if name in found else None


def _listed(own: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return the package and the module of each command of a family."""
    found = families.commands()
    for name in own:
        if name in found:
            raise LudusError(
                f"the command '{name}' of {found[name][0]} is one of ludus's own; rename its file"
            )
    return found


def _command(name: str, room: str, module: str) -> Any:
    try:
        found = importlib.import_module(module)
    except Exception as error:
        raise registry.not_importable(f"the command '{name}' of {room}", error) from error
    function = getattr(found, name.replace("-", "_"), None)
    if not callable(function):
        raise LudusError(
            f"the command '{name}' of {room}: {module} has no function '{name.replace('-', '_')}'"
        )
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    app.command(name=name, rich_help_panel=f"Commands of {room}")(function)
    command = typer.main.get_command(app)
    command.name = name
    return command


def parted(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the plugins named on a command line, and the remaining words."""
    plugins, rest = [], []
    remaining = iter(words)
    for word in remaining:
        if word == "--":
            rest += [word, *remaining]
        elif word == "--plugin":
            plugins += [next(remaining, "")]
        elif word.startswith("--plugin="):
            plugins.append(word.removeprefix("--plugin="))
        else:
            rest.append(word)
    return plugins, rest
