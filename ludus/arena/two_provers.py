"""The speaking order of two provers, each in its own channel: sequential or simultaneous."""

from __future__ import annotations

from collections.abc import Iterator

from ludus.arena.protocol import Turn

_TURNS: tuple[Turn, Turn] = ({"prover0": ("prover0_channel",)}, {"prover1": ("prover1_channel",)})


def prover_turns(sequential: bool, prover0_first: bool | None) -> list[Turn]:
    """Return the rounds of the provers between two of the verifier."""
    one, other = _TURNS
    if not sequential:
        return [{**one, **other}]
    return [one, other] if prover0_first else [other, one]


def problems_of_order(sequential: bool, prover0_first: bool | None) -> Iterator[str]:
    """Yield a problem where an order of the provers is given for simultaneous ones, or missing."""
    if sequential and prover0_first is None:
        yield (
            "'prover0_first' is null, but 'sequential' is true, so one prover speaks first; set it to true"
            " or false"
        )
    if not sequential and prover0_first is not None:
        yield (
            f"'prover0_first' is {str(prover0_first).lower()}, but 'sequential' is false, so both provers"
            " speak at once; set it to null"
        )
