"""State of what holds no other objects: tensors, arrays, random generators, iterators, open files.

Those of torch and NumPy are recognised by their class names alone; nothing is drawn or advanced.
"""

from __future__ import annotations

import functools
import itertools
import math
import random
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

_NUM_PLACES = 4096

Opened = tuple[bytes, list[Any]]
"""Bytes by which a value is compared, and the objects in it."""


def memory_of(value: object) -> int | None:
    """Return the address of the storage of a tensor or an array; None for anything else."""
    kind: Any = type(value)
    if not _has_memory(kind):
        return None
    one: Any = value
    try:
        if hasattr(kind, "untyped_storage"):
            return int(one.untyped_storage().data_ptr()) or id(value)
        while getattr(one, "base", None) is not None and hasattr(one.base, "dtype"):
            one = one.base
        return int(one.__array_interface__["data"][0])
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return id(value)


@functools.lru_cache(maxsize=4096)
def _has_memory(kind: type) -> bool:
    return hasattr(kind, "dtype") and hasattr(kind, "shape") and hasattr(kind, "__array__")


def bytes_of(value: Any, *, whole: int) -> tuple[bytes, bytes, bool] | None:
    """Return the dtype and shape of an array or a tensor, its bytes, and whether these are all of them.

    Beyond `whole` bytes only evenly spread elements are read. None means that it has no plain bytes.
    """
    about = f"{value.dtype} {tuple(value.shape)} ".encode()
    if "object" in str(value.dtype):
        return about, repr(value.ravel()[:100].tolist()).encode(), False
    try:
        is_whole = value.nbytes <= max(whole, 1 << 16)
        if hasattr(value, "detach"):
            value = value.detach()
            if not is_whole:
                value = value[_places(value.shape, value.device)]
            value = value.cpu().contiguous().reshape(-1).view(sys.modules["torch"].uint8).numpy()
            return about, value.tobytes(), is_whole
        if not is_whole:
            value = value.flat[:: max(value.size // _NUM_PLACES, 1)]
        return about, value.tobytes(), is_whole
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        # Sparse, quantised or of a type without plain bytes.
        return None


def _places(shape: Sequence[int], device: object) -> tuple[Any, ...]:
    """Return indices spread evenly over a tensor, whatever its memory layout: only these are copied."""
    torch, count = sys.modules["torch"], math.prod(shape)
    flat = torch.arange(0, count, max(count // _NUM_PLACES, 1), device=device)
    found = []
    for size in reversed(shape):
        found.append(flat % size)
        flat = flat // size
    return tuple(reversed(found))


def has_dict(kind: type) -> bool:
    """Return whether objects of a class can have a dict; reading an object's `__dict__` would create one."""
    return kind.__dictoffset__ != 0


def is_generator(value: object) -> bool:
    """Return whether a value is a random number generator."""
    kind: Any = type(value)
    return state_reader(kind) is not None


def generator_state(value: object) -> Any:
    """Return the state of a random generator of Python, NumPy or torch; None for anything else."""
    kind: Any = type(value)
    read = state_reader(kind)
    return None if read is None else read(value)


@functools.lru_cache(maxsize=4096)
def state_reader(kind: type) -> Callable[[Any], Any] | None:
    """Return a function that reads the state of a random generator of this class; None for other classes."""
    is_of_torch = kind.__module__.startswith("torch") and kind.__name__ == "Generator"
    is_random = "rand" in kind.__name__.lower()
    if hasattr(kind, "bit_generator"):
        return lambda value: value.bit_generator.state
    if kind.__module__.startswith("numpy.random") and hasattr(kind, "state"):
        return lambda value: value.state
    if is_random and hasattr(kind, "getstate"):
        return lambda value: value.getstate()
    if (is_of_torch or is_random) and hasattr(kind, "get_state"):
        return lambda value: value.get_state()
    return None


def global_generators() -> list[object]:
    """Return the global random generators, which the session saves."""
    found: list[object] = [random._inst]
    numpy_random, torch = sys.modules.get("numpy.random.mtrand"), sys.modules.get("torch")
    found += [getattr(numpy_random, "_rand", None), getattr(torch, "default_generator", None)]
    return found


def position(value: object) -> Any:
    """Return the position of an iterator, without advancing it."""
    if isinstance(value, itertools.count | itertools.repeat):
        return repr(value)
    with warnings.catch_warnings():
        # Python 3.12 and 3.13 warn that `__reduce__` of itertools will be removed.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return list(value.__reduce__()[1:])
        except TypeError:
            hint = getattr(type(value), "__length_hint__", None)
            return None if hint is None else hint(value)


def of_file(given: object) -> Opened | None:
    """Return the position of a file open for reading; None for one being written, which affects nothing."""
    value: Any = given
    if hasattr(value, "getvalue"):
        return b"at %d" % value.tell(), [value.getvalue()]
    if value.closed or value.writable() or not value.seekable():
        return None
    raw = getattr(value, "buffer", value)
    return b"at %d" % raw.tell(), []


def of_generator(value: types.GeneratorType[Any, Any, Any]) -> Opened:
    """Return the position of a generator (one that yields) and its local variables."""
    frame = value.gi_frame
    if frame is None:
        return b"ended", []
    return b"at %d" % frame.f_lasti, [dict(frame.f_locals), value.gi_yieldfrom]
