"""Seeds of several runs: a list of whole numbers, or a range such as 0-4."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Annotated

from pydantic import BeforeValidator, Field

from ludus.core.errors import ConfigError

_RANGE = re.compile(r"(\d{1,19})-(\d{1,19})")
_MOST = 10_000


def parse_seeds(given: object) -> object:
    """Return the list that a text such as `0,2,5-7` means, else the value; ValueError for a bad text."""
    if isinstance(given, int) and not isinstance(given, bool):
        return [given]
    if not isinstance(given, str):
        return given
    return [seed for piece in given.split(",") for seed in _range(piece.strip(), given)]


def _range(text: str, whole: str) -> Iterable[int]:
    """Return the seeds of one number or range."""
    if text.isdecimal() and text.isascii():
        return [int(text)]
    match = _RANGE.fullmatch(text)
    if match is None:
        raise ValueError(f"is {whole!r}; give a range such as 0-4, or a list of whole numbers")
    first, last = int(match[1]), int(match[2])
    if last < first:
        raise ValueError(f"runs backwards from {first} to {last}; write {last}-{first}")
    if last - first >= _MOST:
        raise ValueError(f"has {last - first + 1} seeds; {_MOST} are the most")
    return range(first, last + 1)


def read_seeds(given: object, *, what: str = "--seeds") -> list[int]:
    """Return different seeds from a text such as `0-4` or `0,2,5`, or from whole numbers.

    `what` names what they were given as in the ConfigError for anything else.
    """
    try:
        found = _checked(given if isinstance(given, int | str) else _listed(given))
    except ValueError as error:
        raise ConfigError(f"{what} {error}") from None
    assert isinstance(found, list)
    for seed in found:
        if type(seed) is not int or not 0 <= seed < 2**63:
            raise ConfigError(
                f"{what} names {seed!r}; a seed is a whole number from 0 to 2**63 - 1"
            )
    return found


def _listed(given: object) -> object:
    if not isinstance(given, Iterable):
        raise ValueError(f"is {given!r}; give a range such as 0-4, or a list of whole numbers")
    return list(given)


def _checked(given: object) -> object:
    found = parse_seeds(given)
    if isinstance(found, list):
        if not found:
            raise ValueError("is empty; give one seed at least, such as [0]")
        if len(found) > _MOST:
            raise ValueError(f"has {len(found)} seeds; {_MOST} are the most")
        counts = Counter(seed for seed in found if type(seed) is int)
        if twice := sorted(seed for seed, count in counts.items() if count > 1):
            raise ValueError(f"names {twice[0]} twice; a seed counts once")
    return found


Seeds = Annotated[list[Annotated[int, Field(ge=0, lt=2**63)]], BeforeValidator(_checked)]
"""Seeds: a list of different whole numbers, or a range such as 0-4."""
