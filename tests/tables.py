"""The tables of scikit-learn, read once in a process: parsing the digits takes as long as a small run."""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import Any

from ludus.data.sources import _table

BUILT_IN = ("breast_cancer", "diabetes", "digits", "wine")
_find = _table._scikit_learn


@functools.cache
def read(kind: str) -> Any:
    """Return a table of scikit-learn."""
    table = getattr(_find(kind), f"load_{kind}")()
    for one in (table.data, table.target):
        one.flags.writeable = False  # it is that of every later run
    return table


def kept(kind: str) -> Any:
    """Return what loads a table: scikit-learn for one that is generated, and else what was loaded before."""
    if kind not in BUILT_IN:
        return _find(kind)
    return SimpleNamespace(**{f"load_{kind}": lambda: read(kind)})
