"""Names of the best models of a run: one or more per score, numbered; the best of each has a plain copy.

models/best-<number>          one of the best by the first score, immutable; models/best is a copy of the best
models/best-<score>-<number>  one of the best by another score; models/best-<score> is a copy of the best
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

FIRST = "models/best"
RUNNERS_UP = "runners_up"
"""Field of a manifest or an event that lists the models kept besides the best ones."""
_NUMBERED = re.compile(r"best(?:-[a-z][a-z0-9_]*)?-([0-9]{10})")
_COPY = re.compile(r"best-[a-z][a-z0-9_]*")


def best_number(name: str) -> int | None:
    """Return the boundary at which the best model of this name in models/ was found; None for other names."""
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


def is_copy_name(name: str) -> bool:
    """Return whether this name in models/ can be the copy of a best model by a further score."""
    return _COPY.fullmatch(name) is not None


def bests(fields: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the best models that a manifest or an event names, by the name of their copies."""
    first = {FIRST: fields["best"]} if fields.get("best") else {}
    return first | {f"{FIRST}-{name}": best for name, best in fields.get("more_bests", {}).items()}


def every_best(fields: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return all models kept for their scores: the best ones, then the runners-up."""
    return [*bests(fields).values(), *fields.get(RUNNERS_UP, ())]


def best_fields(
    copies: Mapping[str, Mapping[str, Any]], runners_up: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Return the fields of a manifest or an event for these models, without empty ones."""
    more = {copy.removeprefix(f"{FIRST}-"): dict(b) for copy, b in copies.items() if copy != FIRST}
    return {
        "best": dict(copies[FIRST]) if FIRST in copies else None,
        **({"more_bests": more} if more else {}),
        **({RUNNERS_UP: [dict(one) for one in runners_up]} if runners_up else {}),
    }
