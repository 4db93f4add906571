"""Exactness of a run: whether it ends with the same bytes if it is killed and resumed."""

from __future__ import annotations

from enum import StrEnum


class Exact(StrEnum):
    """Exactness of a run; only `no` is false in a condition."""

    PROVED = "proved"
    """`ludus verify` killed and resumed this run, or a resume repeated logged lines and they agreed."""
    EXPECTED = "expected"
    """No reason against it is known."""
    NO = "no"
    """A resumed run may differ; the reasons are listed with it."""

    def __bool__(self) -> bool:
        return self is not Exact.NO


def exact_word(value: object) -> Exact | None:
    """Parse the value in a file: one of the three words, or true or false in older files."""
    if isinstance(value, bool):
        return Exact.EXPECTED if value else Exact.NO
    return Exact(value) if isinstance(value, str) and value in tuple(Exact) else None
