"""Whether a run that is killed and resumed ends with the same bytes, in one of three words."""

from __future__ import annotations

from enum import StrEnum


class Exact(StrEnum):
    """What is known of a run's exactness; in a condition only `no` is false."""

    PROVED = "proved"
    """`ludus verify` killed and resumed this very run, or a resume passed lines seen before and agreed."""
    EXPECTED = "expected"
    """Nothing speaks against it."""
    NO = "no"
    """Something does: the reasons stand beside it."""

    def __bool__(self) -> bool:
        return self is not Exact.NO


def exact_word(told: object) -> Exact | None:
    """Return the word for what a file says: one of the three, or true or false, as it once was."""
    if isinstance(told, bool):
        return Exact.EXPECTED if told else Exact.NO
    return Exact(told) if isinstance(told, str) and told in tuple(Exact) else None
