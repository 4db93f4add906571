"""Find what changes during a run but is not saved: attributes of the trainer and its callbacks.

Only what is plain to see is looked at: numbers, text, containers, arrays, tensors, generators, and objects
of classes from the module that the owner's own class is from.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Iterable, Mapping, Set
from itertools import islice
from typing import Any
from zlib import crc32

from ludus.core.run import Stateful

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
# A long history is known by its length and its ends.
_NUM_LOOKED_AT = 50
_MAX_BYTES = 64 << 20
_MAX_DEPTH = 4


SERVICES = (
    "config", "run", "logger", "storage", "display", "files", "callbacks", "keep_model", "recall_model",
)  # fmt: skip
"""Attributes of a trainer that stand around a run: who owns them sees to their state."""
OWN = ("_saved_cursor", "_unsaved")
"""Attributes by which a trainer does its own work."""


class UnsavedStates:
    """Watches a trainer, and each callback that has no state of its own to save."""

    def __init__(self) -> None:
        self._watched: dict[str, UnsavedState] = {}

    def watch(
        self, trainer: object, parts: Iterable[object], callbacks: Mapping[str, object]
    ) -> None:
        """Notice from now on what changes and is in none of the parts."""
        known = [*parts, *callbacks.values()]
        ignored = (*SERVICES, *OWN)
        self._watched = {"the trainer": UnsavedState(trainer, ignored=ignored, known=known)}
        known += [trainer, *vars(trainer).values()]
        for name, callback in callbacks.items():
            if not isinstance(callback, Stateful):
                watched = UnsavedState(callback, ignored=(), known=known)
                self._watched[f"the callback '{name}'"] = watched

    def reasons(self) -> list[str]:
        """Return a sentence for each owner of which something changed unsaved."""
        found = []
        for name, watched in self._watched.items():
            if changed := ", ".join(watched.changed()):
                is_callback = name != "the trainer"
                remedy = (
                    "give it state_dict and load_state_dict" if is_callback else "make it a part"
                )
                found.append(
                    f"{name} changes ({changed}), which is not saved; {remedy}, or name in its"
                    " `derived` what can be computed anew"
                )
        return found


class UnsavedState:
    """Watches one owner from now on; `changed` names the attributes that are not what they were.

    `ignored` are names of attributes, `known` objects that are saved or served elsewhere. What was once
    seen to change is named for ever.
    """

    def __init__(self, owner: object, *, ignored: Iterable[str], known: Iterable[object]) -> None:
        self._owner = owner
        self._ignored = {*ignored, *derived_names(owner)}
        self._known = {id(thing): thing for thing in (owner, *known)}
        self._found: dict[str, None] = {}
        self._first = self._look()

    def changed(self) -> list[str]:
        """Return the names of all attributes that have been seen to change."""
        now = self._look()
        for name in sorted({*self._first, *now}):
            if self._first.get(name) != now.get(name):
                self._found[name] = None
        return list(self._found)

    def _look(self) -> dict[str, Any]:
        found = {}
        for name, value in sorted(getattr(self._owner, "__dict__", {}).items()):
            if name not in self._ignored:
                summary = self._summary(value, _MAX_DEPTH, set(self._known))
                if summary is not None:
                    found[name] = summary
        return found

    def _summary(self, value: Any, depth: int, seen: set[int]) -> Any:
        """Return something that equals itself for an equal value; None for what is not looked at."""
        if isinstance(value, _PLAIN):
            return type(value).__name__, repr(value)
        if depth == 0 or id(value) in seen:
            return None
        seen = seen | {id(value)}
        if isinstance(value, Mapping):
            keys, items = self._some(value, depth, seen), self._some(value.values(), depth, seen)
            return "mapping", len(value), keys, items
        if isinstance(value, Set):
            return "set", len(value), sorted(repr(item) for item in islice(value, _NUM_LOOKED_AT))
        if isinstance(value, list | tuple | deque):
            ends = [*value][-_NUM_LOOKED_AT:] if len(value) > _NUM_LOOKED_AT else []
            return "list", len(value), self._some(value, depth, seen), self._some(ends, depth, seen)
        if (data := _bytes_of(value)) is not None:
            return type(value).__name__, len(data), crc32(data)
        if (state := _generator_state(value)) is not None:
            return type(value).__name__, state
        is_own = type(value).__module__ == type(self._owner).__module__
        if is_own and hasattr(value, "__dict__") and not _is_machinery(value):
            return type(value).__name__, self._some(vars(value).values(), depth, seen)
        return None

    def _some(self, values: Iterable[Any], depth: int, seen: set[int]) -> list[Any]:
        return [self._summary(value, depth - 1, seen) for value in islice(values, _NUM_LOOKED_AT)]


def derived_names(owner: object) -> set[str]:
    """Return the attributes that the owner's classes say can be computed anew."""
    return {name for cls in type(owner).__mro__ for name in vars(cls).get("derived", ())}


def _is_machinery(value: Any) -> bool:
    is_code = isinstance(value, type | types.ModuleType | types.FunctionType | types.MethodType)
    # A network's state is watched by whoever trains it.
    return is_code or hasattr(value, "named_parameters")


def _bytes_of(value: Any) -> bytes | None:
    """Return the content of an array or a tensor of moderate size."""
    try:
        if not hasattr(value, "dtype") or getattr(value, "nbytes", _MAX_BYTES) >= _MAX_BYTES:
            return None
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            value = value.float().numpy() if "float" in str(value.dtype) else value.numpy()
        return bytes(value.tobytes())
    except (RuntimeError, TypeError):
        # Sparse, quantised or of a type that NumPy lacks: a watcher must not end a run.
        return None


def _generator_state(value: Any) -> str | None:
    """Return the state of a generator of Python, NumPy or torch."""
    if hasattr(value, "bit_generator"):
        return repr(value.bit_generator.state)
    for name in ("getstate", "get_state"):
        if "rand" in type(value).__name__.lower() and hasattr(value, name):
            return repr(getattr(value, name)())
    if type(value).__name__ == "Generator" and hasattr(value, "get_state"):
        return repr(value.get_state().tolist())
    return None
