"""Containers of Python: all their items or a sample, and the bytes of those that hold plain values only."""

from __future__ import annotations

import marshal
from collections import OrderedDict, deque
from collections.abc import Collection, Iterator
from itertools import chain, islice
from typing import Any

PLAIN = (bool, int, float, complex, str, bytes, type(None))
# Subclasses with another order come before their bases.
CONTAINERS = (OrderedDict, dict, list, tuple, set, frozenset, deque)
NUM_SAMPLED = 1_000
PLAIN_KINDS = frozenset(PLAIN)
CONTAINER_KINDS = frozenset(CONTAINERS)
_WRITABLE = {*PLAIN, *CONTAINERS} - {deque}
_PROBE_DEPTH = 4


def some(value: Collection[Any], most: int) -> tuple[bool, list[Any]]:
    """Return all items of a container, keys and values of a dict, or a sample from its ends and between."""
    count = len(value)
    base: Any = type(value)
    if base not in CONTAINER_KINDS:
        base = next(kind for kind in CONTAINERS if isinstance(value, kind))
    if count <= max(most, 0):
        if isinstance(value, dict):
            return False, [*chain.from_iterable(base.items(value))]
        return False, [*base.__iter__(value)]
    items = _sampled(value, base)
    is_cut = len(items) < count
    if isinstance(value, dict):
        items = [part for key in items for part in (key, dict.get(value, key))]
    return is_cut, items


def _sampled(value: Collection[Any], base: type[Any]) -> list[Any]:
    count = len(value)
    step = max(count // NUM_SAMPLED, 1)
    if isinstance(value, list | tuple):
        ends = [*range(min(NUM_SAMPLED, count)), *range(max(count - NUM_SAMPLED, 0), count)]
        places = sorted({*ends, *range(0, count, step)})
        return [base.__getitem__(value, place) for place in places]
    spread = islice(base.__iter__(value), 0, None, step)
    is_ordered = hasattr(base, "__reversed__")
    return [*spread, *(islice(base.__reversed__(value), NUM_SAMPLED) if is_ordered else ())]


def marshalled(value: Collection[Any], most: int) -> tuple[int, bytes] | None:
    """Return the estimated number of values in a container, and their bytes.

    None means that it holds objects, or more values than `most`.
    """
    size = _size(value, _PROBE_DEPTH) if type(value) in CONTAINER_KINDS else None
    if size is None or size > most:
        return None
    try:
        # Version 2 writes values only, so shared references make no difference.
        return size, marshal.dumps(value, 2)  # type: ignore[arg-type]
    except ValueError:
        return None


def _size(value: object, depth: int) -> int | None:
    """Return the estimated number of values in a container, from a few items; None if not all are plain."""
    if type(value) in PLAIN_KINDS:
        return 1 if not isinstance(value, str | bytes) else 1 + len(value) // 64
    if not isinstance(value, CONTAINERS) or type(value) not in CONTAINER_KINDS:
        return None
    if isinstance(value, deque) or depth == 0:
        return None
    if not value:
        return 1
    inside = {*map(type, value), *map(type, value.values() if isinstance(value, dict) else ())}
    if not inside <= _WRITABLE:
        return None
    largest = 0
    for item in _probed(value):
        size = _size(item, depth - 1)
        if size is None:
            return None
        largest = max(largest, size)
    return 1 + len(value) * largest


def _probed(value: Collection[Any]) -> Iterator[Any]:
    if isinstance(value, list | tuple):
        yield from (value[0], value[len(value) // 2], value[-1])
    elif isinstance(value, dict):
        for key, item in islice(value.items(), 3):
            yield from (key, item)
    else:
        yield from islice(value, 3)
