"""Direction of a metric, min or max: one table, to which every package and plugin adds."""

from __future__ import annotations

import re
from typing import Final, Literal

from ludus.config import families
from ludus.core.errors import ConfigError

Direction = Literal["min", "max"]

_SPREADS: Final = frozenset({"std", "var", "se", "len", "length", "min", "max"})
"""Words that name a statistic without a better direction, whatever it is computed from."""


def known_direction(metric: str) -> Direction | None:
    """Return the better direction of this metric, or None if none is declared.

    A declaration for the whole name comes first, then one for its last part, then those for its words;
    min wins among words: an error of a reward is an error.
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
    """Return the better direction of this metric, `given` first; raise ConfigError if none is known."""
    direction = known_direction(metric) if given is None else given
    if direction is None:
        raise ConfigError(
            f"cannot tell whether '{metric}' should go up or down; set mode to min or max, or declare it:"
            f" ludus.declare(__name__, directions={{'{metric}': 'max'}})"
        )
    return direction


def _as_direction(declared: str) -> Direction:
    return "min" if declared == "min" else "max"
