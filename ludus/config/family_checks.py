"""Checks of what a family declares: malformed names, and names that another family has declared."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from ludus.core import counters as core_counters
from ludus.core.errors import LudusError

if TYPE_CHECKING:
    from ludus.config.families import Family

_WORD = re.compile(r"[a-z][a-z0-9_]*")


def check_family(
    found: Family, counters: Sequence[str], others: Sequence[Family], *, shared: Collection[str]
) -> None:
    """Raise LudusError for the first declaration that is malformed or another family's.

    `others` have been declared before, and `shared` are categories that belong to no family.
    """
    room = found.name
    for category in found.categories:
        owners = [one.name for one in others if category in one.categories]
        _check_name("category", category, room, ["ludus"] if category in shared else owners)
    for counter in counters:
        _check_name("counter", counter, room, core_counters.owners(counter))
        if counters.count(counter) > 1:
            raise LudusError(f"{room} declares the counter '{counter}' twice; name it once")
    for key, counter in found.lengths.items():
        core_counters.check(counter, [*core_counters.SHARED, *counters])
        _check_word("config key", key, room)
        _check_length(key, counter, room, others)
    for metric, direction in found.directions.items():
        _check_direction(metric, direction, room, others)


def _check_name(what: str, name: str, room: str, owners: Collection[str]) -> None:
    """Raise LudusError for a name that is malformed, or declared by another package."""
    _check_word(what, name, room)
    for owner in owners:
        # Families of ludus may count the same thing, each in its own runs.
        is_shared = what == "counter" and all(one.startswith("ludus.") for one in (owner, room))
        if owner != room and not is_shared:
            raise LudusError(
                f"the {what} '{name}' is declared by {owner} and by {room}; rename the one that is yours"
            )


def _check_word(what: str, name: str, room: str) -> None:
    if not _WORD.fullmatch(name):
        raise LudusError(f"{room} declares the {what} {name!r}; use lower-case words joined by '_'")


def _check_length(key: str, counter: str, room: str, others: Sequence[Family]) -> None:
    """Raise LudusError if another package declares that this config key limits another counter."""
    for other in others:
        if other.name != room and other.lengths.get(key, counter) != counter:
            raise LudusError(
                f"the config key '{key}' limits {other.lengths[key]} in {other.name} and {counter} in"
                f" {room}; rename the one that is yours"
            )


def _check_direction(metric: str, direction: str, room: str, others: Sequence[Family]) -> None:
    """Raise LudusError for an unknown direction, or one that another package contradicts."""
    if direction not in ("min", "max"):
        raise LudusError(
            f"{room} declares the direction {direction!r} for the metric '{metric}'; give min or max"
        )
    for other in others:
        if other.name != room and other.directions.get(metric, direction) != direction:
            raise LudusError(
                f"{other.name} declares that {other.directions[metric]} is better for the metric"
                f" '{metric}' and {room} that {direction} is; rename the one that is yours"
            )
