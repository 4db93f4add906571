"""Indices into the batch dimensions, which come first in every leaf."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from types import EllipsisType
from typing import Any, TypeAlias

import numpy as np

from ludus.text.nested.leaves import BadIndex, NestedError

Shape: TypeAlias = tuple[int, ...]
Place: TypeAlias = tuple[Any, ...]


def as_shape(size: int | Sequence[int]) -> Shape:
    """Return a batch size as a tuple of whole numbers."""
    sizes = (size,) if isinstance(size, int | np.integer) else size
    try:
        shape = tuple(operator.index(one) for one in sizes)
    except TypeError:
        raise NestedError(
            f"{size!r} is not a batch size; give a number or a tuple of them"
        ) from None
    if any(one < 0 for one in shape):
        raise NestedError(f"the batch size {shape} has a negative dimension")
    return shape


def as_place(index: object, *, batch_size: Shape) -> Place:
    """Return an index that selects the same rows in every leaf, whatever dimensions follow the batch's.

    It is made of whole numbers, slices, one ellipsis (of the batch dimensions), and arrays or lists of
    booleans or whole numbers, as in NumPy.
    """
    given = index if isinstance(index, tuple) else (index,)
    items = [_item(one) for one in given]
    taken = sum(_dimensions(one) for one in items)
    if taken > len(batch_size):
        raise BadIndex(f"{taken} dimensions are indexed, but the batch size is {batch_size}")
    ellipses = [number for number, one in enumerate(items) if one is Ellipsis]
    if len(ellipses) > 1:
        raise BadIndex("an index may hold one ellipsis only")
    if ellipses:
        rest = [slice(None)] * (len(batch_size) - taken)
        items[ellipses[0] : ellipses[0] + 1] = rest
    # With the ellipsis NumPy returns an array where it would return a number or a text.
    return (*items, ...)


def size_at(place: Place, *, batch_size: Shape) -> Shape:
    """Return the batch size of what an index selects."""
    try:
        return np.broadcast_to(np.False_, batch_size)[place].shape
    except IndexError as error:
        raise BadIndex(f"{error}; the batch size is {batch_size}") from None


def reshaped(batch_size: Shape, wanted: Shape) -> Shape:
    """Return the wanted batch size, its -1 replaced by what is left."""
    known = math.prod(one for one in wanted if one != -1)
    total = math.prod(batch_size)
    if wanted.count(-1) == 1 and known > 0:
        wanted = tuple(total // known if one == -1 else one for one in wanted)
    if any(one < 0 for one in wanted) or math.prod(wanted) != total:
        raise NestedError(f"a batch of size {batch_size} cannot be reshaped to {wanted}")
    return wanted


def _item(one: object) -> int | slice | EllipsisType | np.ndarray[Any, np.dtype[Any]]:
    if one is Ellipsis or isinstance(one, slice):
        return one
    if isinstance(one, int | np.integer) and not isinstance(one, bool):
        return int(one)
    array = np.asarray(one)
    if array.size == 0 and isinstance(one, list):
        return array.astype(np.intp)
    if array.dtype.kind not in "biu" or (array.dtype.kind == "b" and array.ndim == 0):
        raise BadIndex(
            f"{one!r} is not an index; give numbers, slices, or arrays of booleans or whole numbers"
        )
    return array


def _dimensions(one: object) -> int:
    if one is Ellipsis:
        return 0
    return one.ndim if isinstance(one, np.ndarray) and one.dtype.kind == "b" else 1
