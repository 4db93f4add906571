"""Leaves of a nested array dictionary: which NumPy arrays it holds, and what is converted to one."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.dtypes import StringDType

from ludus.core.errors import LudusError

Leaf: TypeAlias = np.ndarray[Any, np.dtype[Any]]
"""An array of booleans, integers, floats, complex numbers or texts."""

TEXT = StringDType(na_object=None)
"""Texts of any length, or None where there is no text."""

_FLOAT_BYTES = (2, 4, 8)


class NestedError(LudusError):
    """A nested array dictionary cannot do what was asked with these arrays."""


class NoSuchKey(NestedError, KeyError):
    """A nested array dictionary has no such key."""

    def __str__(self) -> str:
        return str(self.args[0])


class BadIndex(NestedError, IndexError):
    """An index does not fit the batch size."""


def as_leaf(value: object, *, name: str) -> Leaf:
    """Return the value as an array that can be held; an array of a good dtype is returned as it is.

    Lists of texts, and arrays of objects that are all texts or None, become arrays of dtype TEXT: a
    fixed width would pad each text to the longest one and drop NUL characters at its end.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise NestedError(f"{name} is a masked array; fill it first, as with .filled()")
    if not isinstance(value, np.ndarray):
        value = _converted(value, name)
    if value.dtype.kind == "O" or (value.dtype.kind == "T" and value.dtype != TEXT):
        return _as_text(value, name)
    if not _is_held(value.dtype):
        raise NestedError(
            f"{name} has dtype {value.dtype}; a leaf holds booleans, integers, floats, complex numbers"
            " or texts"
        )
    if value.dtype == "<U0":
        return np.zeros(value.shape, dtype="<U1")
    if value.dtype.kind != "T" and not value.dtype.isnative:
        return value.astype(value.dtype.newbyteorder("="))
    return np.asarray(value)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name by which a dtype is shown and saved."""
    return "text" if dtype.kind == "T" else dtype.newbyteorder("<").str


def are_equal(one: object, other: object) -> bool:
    """Return whether two arrays, or branches, have the same dtype, shape and contents; NaN equals NaN."""
    if not isinstance(one, np.ndarray) or not isinstance(other, np.ndarray):
        return type(one) is type(other) and bool(one == other)
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return bool(np.array_equal(one, other, equal_nan=one.dtype.kind in "fc"))


def fits(given: np.dtype[Any], held: np.dtype[Any]) -> bool:
    """Return whether values of one dtype can be written into an array of another without loss of kind.

    NumPy would cut texts to a fixed width, and drop what follows the decimal point.
    """
    if held.kind == "T":
        return given.kind in "TU"
    return (
        given.kind != "T"
        and (given.kind == "U") == (held.kind == "U")
        and np.can_cast(given, held, "safe" if held.kind == "U" else "same_kind")
    )


def _is_held(dtype: np.dtype[Any]) -> bool:
    if dtype.kind == "f":
        return dtype.itemsize in _FLOAT_BYTES
    return dtype.kind in "biuUT" or (dtype.kind == "c" and dtype.itemsize in (8, 16))


def _converted(value: object, name: str) -> Leaf:
    """Return an array of a value that is not one."""
    first = value
    while isinstance(first, list | tuple) and first:
        first = first[0]
    try:
        # Of a list that holds a text, NumPy would make an array as wide as its longest text.
        made = np.array(value, dtype=object if first is None or isinstance(first, str) else None)
        if made.dtype.kind == "U":
            made = np.array(value, dtype=object)
    except (ValueError, TypeError, RuntimeError, OverflowError) as error:
        raise NestedError(f"{name} cannot be made an array: {error}") from None
    return made


def _as_text(value: Leaf, name: str) -> Leaf:
    if value.dtype.kind == "O":
        for item in value.reshape(-1).tolist():
            if item is not None and not isinstance(item, str):
                raise NestedError(
                    f"{name} holds a {type(item).__name__} among texts or objects; a leaf holds numbers, or"
                    " texts and None, in nested lists that are all of the same length"
                )
    try:
        return value.astype(TEXT)
    except UnicodeEncodeError:
        raise NestedError(
            f"{name} holds a text with a lone surrogate, which is not Unicode"
        ) from None
