"""Convert the functions of an elementwise game to Triton functions, so that a kernel can inline them."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from ludus.core.errors import LudusError
from ludus.games import elementwise
from ludus.games.kernels.inlinable import why_not_inlined


@triton.jit
def _where(is_so, then, otherwise):
    return tl.where(is_so, then, otherwise)


@triton.jit
def _sin(x):
    return tl.sin(x)


@triton.jit
def _cos(x):
    return tl.cos(x)


@triton.jit
def _exp(x):
    return tl.exp(x)


@triton.jit
def _sqrt(x):
    return tl.sqrt(x)


@triton.jit
def _floor(x):
    return tl.floor(x)


@triton.jit
def _absolute(x):
    return tl.abs(x)


@triton.jit
def _minimum(x, y):
    return tl.minimum(x, y)


@triton.jit
def _maximum(x, y):
    return tl.maximum(x, y)


_OWN = (_where, _sin, _cos, _exp, _sqrt, _floor, _absolute, _minimum, _maximum)
_OPERATIONS: dict[Any, Any] = dict(zip(elementwise.OPERATIONS, _OWN, strict=True))


def inlined(function: Callable[..., Any]) -> Any:
    """Return a copy of a function that computes in a kernel what the function computes on tensors.

    Its globals are rebound: operations to Triton's, numbers to constants, functions to such copies. Raises
    LudusError for a function that `why_not_inlined` rejects.
    """
    reason = why_not_inlined(function)
    if reason is not None:
        raise LudusError(f"no kernel can inline it: {reason}")
    assert isinstance(function, types.FunctionType)
    # Triton reads annotations too.
    bound: dict[str, Any] = {"tl": tl, "Tensor": tl.tensor}
    for name in function.__code__.co_names:
        value = function.__globals__[name]
        if isinstance(value, int | float):
            bound[name] = tl.constexpr(value)
        else:
            bound[name] = _OPERATIONS[value] if value in _OPERATIONS else inlined(value)
    copy = types.FunctionType(function.__code__, bound, function.__name__)
    copy.__module__ = function.__module__
    copy.__qualname__ = function.__qualname__
    return triton.jit(copy)
