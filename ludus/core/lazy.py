"""Names of a package that are imported when first used: who wants one need not wait for the rest."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_names(
    package: str, file: str
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__all__`, `__getattr__` and `__dir__` of a package, from its imports for type checkers.

    A package imports its names `if TYPE_CHECKING`, each `as` itself so that checkers take it for public, and
    calls this `else`: checkers would take any misspelt name for one that `__getattr__` finds.
    """
    where = imported_for_checkers(Path(file).read_text(encoding="utf-8"))
    module = sys.modules[package]

    def get(name: str) -> Any:
        if name not in where:
            raise AttributeError(f"module '{package}' has no attribute '{name}'")
        value = getattr(importlib.import_module(where[name]), name)
        setattr(module, name, value)
        return value

    return sorted(where), get, lambda: list(module.__all__)


def imported_for_checkers(source: str) -> dict[str, str]:
    """Return the module of each name that is imported under `if TYPE_CHECKING`."""
    return {
        alias.name: node.module
        for block in ast.parse(source).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.module is not None
        for alias in node.names
    }
