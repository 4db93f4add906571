"""Flatten nested data to its values by dotted paths."""

from __future__ import annotations

from collections.abc import Mapping


def leaves(data: Mapping[str, object]) -> dict[str, object]:
    """Return every value of nested mappings by its dotted path, in their order.

    A list is one value, unless it holds sections or lists: then each has its index in the path. What is empty
    is a value, too.
    """
    return _leaves(data, "")


def _leaves(data: object, path: str) -> dict[str, object]:
    if isinstance(data, Mapping) and (data or not path):
        parts = [(str(key), value) for key, value in data.items()]
    elif isinstance(data, list) and any(isinstance(value, Mapping | list) for value in data):
        parts = [(str(index), value) for index, value in enumerate(data)]
    else:
        return {path: data}
    found: dict[str, object] = {}
    for name, value in parts:
        found |= _leaves(value, f"{path}.{name}" if path else name)
    return found
