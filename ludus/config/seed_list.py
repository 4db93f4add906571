"""Seeds of several runs: a list of whole numbers, or a range such as 0-4."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

_RANGE = re.compile(r"(\d{1,19})-(\d{1,19})")
_MOST = 10_000


def parse_seeds(given: object) -> object:
    """Return the list that a range means, and anything else unchanged; raise ValueError for a bad range."""
    if isinstance(given, int) and not isinstance(given, bool):
        return [given]
    if not isinstance(given, str):
        return given
    if given.isdecimal():
        return [int(given)]
    match = _RANGE.fullmatch(given.strip())
    if match is None:
        raise ValueError(f"is {given!r}; give a range such as 0-4, or a list of whole numbers")
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise ValueError(f"runs backwards from {first} to {last}; write {last}-{first}")
    if last - first >= _MOST:
        raise ValueError(f"has {last - first + 1} seeds; {_MOST} are the most")
    return list(range(first, last + 1))


def _checked(given: object) -> object:
    found = parse_seeds(given)
    if isinstance(found, list):
        if not found:
            raise ValueError("is empty; give one seed at least, such as [0]")
        if twice := sorted({seed for seed in found if found.count(seed) > 1 and type(seed) is int}):
            raise ValueError(f"names {twice[0]} twice; a seed counts once")
    return found


Seeds = Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], BeforeValidator(_checked)]
"""Seeds: a list of different whole numbers, or a range such as 0-4."""
