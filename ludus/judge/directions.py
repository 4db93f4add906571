"""Whether less or more of a metric is better: one table, which every room and plugin adds to."""

from __future__ import annotations

import re
from typing import Final, Literal

from ludus.config import families
from ludus.core.errors import ConfigError

Direction = Literal["min", "max"]

_SPREADS: Final = frozenset({"std", "var", "se", "len", "length", "min", "max"})
"""Words of a statistic of which neither less nor more is better, whatever it is of."""


def known_direction(metric: str) -> Direction | None:
    """Return which way this metric is better, or None where nobody has declared it.

    What is declared for its whole name goes first, then for its last part, then for any word of it;
    an error of a reward is an error.
    """
    declared = families.directions()
    for name in (metric, metric.rpartition("/")[2]):
        if name in declared:
            return _as_direction(declared[name])
    words = set(re.split(r"[^a-z0-9]+", metric.lower()))
    if words & _SPREADS:
        return None
    found = {declared[word] for word in words if word in declared}
    return _as_direction(min(found, key=("min", "max").index)) if found else None


def direction_of(metric: str, given: Direction | None = None) -> Direction:
    """Return which way this metric is better, `given` first; raise ConfigError where nobody knows."""
    direction = known_direction(metric) if given is None else given
    if direction is None:
        raise ConfigError(
            f"cannot tell whether '{metric}' should go up or down; set mode to min or max, or declare it:"
            f" ludus.declare(__name__, directions={{'{metric}': 'max'}})"
        )
    return direction


def _as_direction(declared: str) -> Direction:
    return "min" if declared == "min" else "max"
