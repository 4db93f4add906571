"""Validate saved state: every value must have the type, shape and range that its part accepts.

A checkpoint may pass its integrity checks and still hold values that no run saved. A value that does not
fit is refused, by part and key, before anything has changed; it is never converted to one that fits.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Protocol, TypeVar

from ludus.core.errors import CheckpointError, LudusError

Holds = Mapping[str, Any] | Sequence[Any]
"""A piece of a saved state: a mapping or a sequence, indexed by a key."""
Key = str | int

_FORMAT: ContextVar[int | None] = ContextVar("format", default=None)


class Numbers(Protocol):
    """A tensor or an array."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...


N = TypeVar("N", bound=Numbers)
P = TypeVar("P")
_ALWAYS_PARTS = frozenset({"given.evaluator", "given.score", "given.recorder"})


class StateError(CheckpointError):
    """A saved state does not fit its part; `key` is the path of the value inside the state."""

    def __init__(self, key: str, problem: str, *, about: str = "") -> None:
        super().__init__(about + (f"'{key}' {problem}" if key else problem))
        self.key, self.problem = key, problem


@contextlib.contextmanager
def of_format(number: int) -> Iterator[None]:
    """Load states as written by checkpoints of this format inside the block; the default is the newest."""
    token = _FORMAT.set(number)
    try:
        yield
    finally:
        _FORMAT.reset(token)


def is_of_format(number: int) -> bool:
    """Return whether the state being loaded is from a checkpoint of this format."""
    return _FORMAT.get() == number


def check_same_parts(parts: Mapping[str, P], state: Mapping[str, Any]) -> dict[str, P]:
    """Return the parts that have a saved state; raise CheckpointError unless it covers exactly these parts.

    Other objects that a script gives (a game, an analyser) were not parts in older versions, so a checkpoint
    may lack them.
    """
    missing, unknown = sorted(set(parts) - set(state)), sorted(set(state) - set(parts))
    missing = [name for name in missing if not name.startswith("given.") or name in _ALWAYS_PARTS]
    if missing or unknown:
        words = [f"has no {', '.join(missing)}"] if missing else []
        words += [f"holds {', '.join(unknown)}, which this trainer lacks"] if unknown else []
        raise CheckpointError(
            f"the saved state {' and '.join(words)}; build the trainer, its model and its callbacks"
            " as they were when it was saved"
        )
    return {name: part for name, part in parts.items() if name in state}


@contextlib.contextmanager
def fitting(part: str) -> Iterator[None]:
    """Turn any error in loading the state of a part into a CheckpointError."""
    try:
        yield
    except StateError as error:
        raise CheckpointError(
            f"the saved state of '{part}' does not fit it: {error}; build the trainer as it was when"
            " it was saved, or restore the checkpoint"
        ) from error
    except CheckpointError as error:
        raise CheckpointError(f"the saved state of '{part}' does not fit it: {error}") from error
    except LudusError:
        raise
    except Exception as error:
        problem = " ".join(str(error).split())[:200]
        raise CheckpointError(
            f"the saved state of '{part}' does not fit it ({type(error).__name__}: {problem});"
            " build the trainer as it was when it was saved"
        ) from error


@contextlib.contextmanager
def within(key: str) -> Iterator[None]:
    """Prefix the keys of errors raised in the block with this key; name it for any other error."""
    try:
        yield
    except StateError as error:
        path = f"{key}/{error.key}" if error.key else key
        raise StateError(path, error.problem) from error
    except LudusError:
        raise
    except Exception as error:
        problem = " ".join(str(error).split())[:200]
        raise StateError(key, f"cannot be taken ({type(error).__name__}: {problem})") from error


def check_keys(state: object, *names: str, optional: Sequence[str] = ()) -> None:
    """Raise StateError unless the state is a mapping with these keys and no others but the optional ones."""
    if not isinstance(state, Mapping):
        raise StateError("", f"it is a {type(state).__name__}, not a mapping")
    for name in names:
        if name not in state:
            raise StateError(name, "is missing")
    for name in state:
        if name not in names and name not in optional:
            raise StateError(str(name), "is not known here")


def whole(state: Holds, key: Key, *, at_least: int = 0, at_most: int | None = None) -> int:
    """Return an integer within these bounds; the default upper bound is that of 64 bits."""
    at_most = 2**63 - 1 if at_most is None else at_most
    value: int = _typed(state, key, "a whole number", int)
    if not at_least <= value <= at_most:
        bounds = f"{at_least} or more" if value < at_least else f"from {at_least} to {at_most}"
        raise StateError(str(key), f"is {_shown(value)}; it must be {bounds}")
    return value


def real(state: Holds, key: Key) -> float:
    """Return a number, which may be infinite or NaN."""
    return _typed(state, key, "a number", int, float)  # type: ignore[no-any-return]


def number(state: Holds, key: Key, *, at_least: float = -math.inf) -> float:
    """Return a finite number of at least `at_least`."""
    value = real(state, key)
    if not math.isfinite(value) or value < at_least:
        bound = "finite" if at_least == -math.inf else f"finite and {at_least:g} or more"
        raise StateError(str(key), f"is {_shown(value)}; it must be {bound}")
    return value


def flag(state: Holds, key: Key) -> bool:
    """Return a bool."""
    return _typed(state, key, "true or false", bool)  # type: ignore[no-any-return]


def text(state: Holds, key: Key) -> str:
    """Return a string."""
    return _typed(state, key, "a text", str)  # type: ignore[no-any-return]


def texts(state: Holds, key: Key) -> list[str]:
    """Return a list of strings, as a new list."""
    items = rows(state, key)
    with within(str(key)):
        return [text(items, index) for index in range(len(items))]


def rows(state: Holds, key: Key, *, length: int | None = None) -> list[Any]:
    """Return a list, of this length if one is given, as a new list."""
    value = _at(state, key)
    if not isinstance(value, list):
        raise StateError(str(key), f"is {_shown(value)}, not a list")
    if length is not None and len(value) != length:
        raise StateError(str(key), f"has {len(value)} entries; it must have {length}")
    return list(value)


def mapping(state: Holds, key: Key) -> dict[str, Any]:
    """Return a mapping with string keys, as a new dict."""
    value = _at(state, key)
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise StateError(str(key), f"is {_shown(value)}, not a mapping of names")
    return dict(value)


def counts(state: Holds, key: Key) -> dict[str, int]:
    """Return a mapping from names to integers of 0 or more."""
    found = mapping(state, key)
    with within(str(key)):
        return {name: whole(found, name) for name in found}


def like(state: Holds, key: Key, own: N, *, finite: bool = False) -> N:
    """Return a tensor or an array of the kind, shape and dtype of `own`; `finite` forbids NaN and inf.

    Its device does not matter: it is copied to the right one.
    """
    return shaped(state, key, own, tuple(own.shape), finite=finite)


def shaped(
    state: Holds, key: Key, own: N, shape: tuple[int | None, ...], *, finite: bool = False
) -> N:
    """Return a tensor or an array of the kind and dtype of `own`; in `shape` None is any length."""
    value = _at(state, key)
    has_tensors = hasattr(own, "detach")
    if not hasattr(value, "dtype") or hasattr(value, "detach") != has_tensors:
        kind = "a tensor" if has_tensors else "an array"
        raise StateError(str(key), f"is {_shown(value)}, not {kind}")
    found = tuple(value.shape)
    is_shaped = len(found) == len(shape) and all(
        want in (None, got) for want, got in zip(shape, found, strict=True)
    )
    if value.dtype != own.dtype or not is_shaped:
        wanted = str(tuple("any" if n is None else n for n in shape)).replace("'", "")
        raise StateError(
            str(key), f"is {value.dtype} of {found}; it must be {own.dtype} of {wanted}"
        )
    # Written without importing NumPy or torch: a NaN is not below infinity.
    if finite and "float" in str(value.dtype) and not bool((abs(value) < math.inf).all()):
        raise StateError(str(key), "holds a number that is not finite")
    return value  # type: ignore[no-any-return]


def between(key: Key, values: N, *, low: float, high: float = math.inf) -> N:
    """Return the array or tensor if all its numbers are from `low` to `high`."""
    numbers: Any = values
    if math.prod(values.shape) and not bool(((numbers >= low) & (numbers <= high)).all()):
        bounds = f"{low:g} or more" if high == math.inf else f"from {low:g} to {high:g}"
        raise StateError(str(key), f"holds a number out of its range; all must be {bounds}")
    return values


def _at(state: Holds, key: Key) -> Any:
    return state[key]  # type: ignore[index]


def _typed(state: Holds, key: Key, words: str, *kinds: type) -> Any:
    value = _at(state, key)
    if type(value) not in kinds:
        raise StateError(str(key), f"is {_shown(value)}, not {words}")
    return value


def _shown(value: object) -> str:
    if isinstance(value, bool | int | float | str | type(None)):
        return repr(value)[:60]
    return f"a {type(value).__name__}"
