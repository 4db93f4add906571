"""Names of a package that are imported when first used: who wants one need not wait for the rest."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable
from typing import Any

IMPORT = re.compile(r"^    from (\S+) import (\([^)]*\)|.*)$", re.MULTILINE)


def lazy_names(
    package: str, file: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, from its imports for type checkers.

    A package imports its names `if TYPE_CHECKING`, each `as` itself so that checkers take it for public, and
    calls this `else`: checkers would take any misspelt name for one that `__getattr__` finds.
    """
    with open(file, encoding="utf-8") as source:
        where = imported_for_checkers(source.read())
    module = sys.modules[package]

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(where[name]), name)
        setattr(module, name, value)
        return value

    return sorted(where), get, lambda: list(module.__all__)


def imported_for_checkers(source: str) -> dict[str, str]:
    """Return the module of each name that is imported under `if TYPE_CHECKING`, up to the `else`.

    Read with a pattern: importing `ast` to parse the file would take longer than all else in `import ludus`.
    """
    block = source.partition("\nif TYPE_CHECKING:\n")[2].partition("\nelse:\n")[0]
    return {
        name: module
        for module, names in IMPORT.findall(block)
        for name in re.findall(r"(\w+) as \w+", names)
    }
