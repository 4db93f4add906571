"""Parse the outputs of an env as numbers and flags; a ValueError says what is wrong with the value."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium import spaces

_NUMBERS = "biuf"
"""The kinds of NumPy's dtypes that are numbers, bools among them."""
_LARGEST = float(np.finfo(np.float32).max)


def as_reward(value: object) -> float:
    """Return a number that is finite in float32; it may be the only element of an array."""
    if not isinstance(value, float):
        array = _array(value)
        if array.dtype.kind not in _NUMBERS or array.size != 1:
            raise ValueError(f"is {description(value)}, not a number")
        value = float(array.item())
    if not abs(value) <= _LARGEST:
        raise ValueError(f"is {value}, which is not finite in float32")
    return value


def as_flag(value: object) -> bool:
    """Return a bool, which may be the only element of an array or be 0 or 1."""
    if isinstance(value, bool | np.bool_):
        return bool(value)
    array = _array(value)
    if array.dtype.kind not in _NUMBERS or array.size != 1 or array.item() not in (0, 1):
        raise ValueError(f"is {description(value)}, not a bool")
    return bool(array.item())


def flattened(space: spaces.Space[Any], size: int, seen: object) -> np.ndarray:
    """Return an observation as one row of this many numbers, finite or not."""
    row = _row(space, seen)
    if len(row) != size:
        raise ValueError(f"has {len(row)} numbers, but its observation_space has {size}")
    return row


def _row(space: spaces.Space[Any], seen: object) -> np.ndarray:
    if isinstance(space, spaces.Box):
        array = _array(seen)
        if array.dtype.kind not in _NUMBERS:
            raise ValueError(
                f"is {description(seen)}, not numbers as its observation_space, a Box, says"
            )
        return _as_float32(array).reshape(-1)
    try:
        return _as_float32(np.asarray(spaces.flatten(space, seen)))
    except Exception as error:
        raise ValueError(
            f"is {description(seen)}, which its observation_space, {space}, does not fit"
        ) from error


def _as_float32(array: np.ndarray) -> np.ndarray:
    if array.dtype == np.float32:
        return array
    # Values too large for float32 become infinite, which is reported where rows are checked together.
    with np.errstate(over="ignore"):
        return array.astype(np.float32)


def _array(value: object) -> np.ndarray:
    try:
        return np.asarray(value)
    except Exception as error:
        raise ValueError(f"is {description(value)}, not numbers of one shape") from error


def description(value: object) -> str:
    """Return a short description of a value: its type, and itself where it is short."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    if isinstance(value, Mapping):
        return f"a {type(value).__name__} with {', '.join(map(repr, value)) or 'no keys'}"
    if isinstance(value, str | int | float):
        return f"{reprlib.repr(value)}, a {type(value).__name__}"
    return "None" if value is None else f"a {type(value).__name__}"
