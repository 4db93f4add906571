"""Names of a package that are imported when first used: who wants one need not wait for the rest."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, where: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the `__getattr__` and the `__dir__` of a package; `where` has the module of each name.

    A package calls it where checkers do not look (`if not TYPE_CHECKING`): they would take any misspelt
    name for one that `__getattr__` finds. For them it imports the same names `if TYPE_CHECKING`.
    """
    module = sys.modules[package]

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(where[name]), name)
        setattr(module, name, value)
        return value

    return get, lambda: list(module.__all__)
