"""Pages of lists: what comes after an id, at most so many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from fastapi import Request

from ludus.text.server.errors import ApiError, invalid, shown

T = TypeVar("T")


def page_of(
    items: Sequence[T],
    *,
    name: Callable[[T], str],
    to_json: Callable[[T], dict[str, Any]],
    after: str | None,
    limit: int,
) -> dict[str, Any]:
    """Return the items after the one of this id as a list of the API."""
    start = 0
    if after is not None:
        places = [place for place, item in enumerate(items) if name(item) == after]
        if not places:
            text = f"Invalid 'after': there is no '{shown(after)}' in this list."
            raise ApiError(404, text, "after", "not_found")
        start = places[0] + 1
    found = items[start : start + limit]
    return {
        "object": "list",
        "data": [to_json(item) for item in found],
        "has_more": start + limit < len(items),
        "first_id": name(found[0]) if found else None,
        "last_id": name(found[-1]) if found else None,
    }


def refuse_unknown(request: Request, *known: str) -> None:
    """Raise ApiError for a query parameter that the route does not have; `name[...]` is a part of `name`."""
    for name in request.query_params:
        whole = name.partition("[")[0] if name.endswith("]") else name
        if whole not in known:
            raise invalid(f"Unknown parameter: '{shown(name)}'.", shown(name), "unknown_parameter")
