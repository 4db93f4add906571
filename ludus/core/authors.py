"""Classify modules by author: the user's code, a known library, or a third-party package."""

from __future__ import annotations

import functools
import sys
from pathlib import Path

_LIBRARIES = {"ludus", "torch", "numpy", "builtins", "tensordict", "torchrl", "gymnasium"}
_INSTALLED = {"site-packages", "dist-packages"}


@functools.cache
def is_of_user(module: str) -> bool:
    """Return whether a module belongs to no library and not to the standard library."""
    top = module.partition(".")[0]
    if top in _LIBRARIES or (top in sys.stdlib_module_names and top != "__main__"):
        return False
    return not is_third_party(module)


@functools.cache
def is_third_party(module: str) -> bool:
    """Return whether a module is installed and belongs to none of the known libraries."""
    top = module.partition(".")[0]
    file = getattr(sys.modules.get(module) or sys.modules.get(top), "__file__", None)
    return top not in _LIBRARIES and bool(file and _INSTALLED & {*Path(file).parts})
