"""The best models of a run: one for each score, under a numbered name, with a copy for people.

models/best-<number>          the best by the first score, immutable; its copy is models/best
models/best-<score>-<number>  the best by another score; its copy is models/best-<score>
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

FIRST = "models/best"
_NUMBERED = re.compile(r"best(?:-[a-z][a-z0-9_]*)?-([0-9]{10})")
_COPY = re.compile(r"best-[a-z][a-z0-9_]*")


def best_number(name: str) -> int | None:
    """Return the boundary at which a best model of this name in models/ was found; None for others."""
    found = _NUMBERED.fullmatch(name)
    return None if found is None else int(found[1])


def is_copy_name(name: str) -> bool:
    """Return whether a name in models/ may be that of the copy of a best model by a further score."""
    return _COPY.fullmatch(name) is not None


def bests(told: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each best that a manifest or an event names, by the name of its copy."""
    first = {FIRST: told["best"]} if told.get("best") else {}
    return first | {f"{FIRST}-{name}": best for name, best in told.get("more_bests", {}).items()}


def told_of(copies: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the fields of a manifest or an event that say so; without further scores only `best`."""
    more = {copy.removeprefix(f"{FIRST}-"): b for copy, b in copies.items() if copy != FIRST}
    return {"best": copies.get(FIRST), **({"more_bests": more} if more else {})}
