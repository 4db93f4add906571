"""Find what changes during a run but is not saved: attributes of the trainer and of what a script gave it.

Only what is plain to see is looked at: numbers, text, containers, arrays, tensors, generators, and objects
of classes from the module that the owner's own class is from.
"""

from __future__ import annotations

import types
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Set
from itertools import islice
from typing import TYPE_CHECKING, Any
from zlib import crc32

from ludus.core.run import Stateful

if TYPE_CHECKING:
    from ludus.core.trainer import Trainer

_PLAIN = (bool, int, float, complex, str, bytes, type(None))
# A long history is known by its length and its ends.
_NUM_LOOKED_AT = 50
_MAX_BYTES = 64 << 20
_MAX_DEPTH = 4


def served(trainer: Trainer, parts: Iterable[object]) -> list[object]:
    """Return what is saved or served elsewhere: the parts, the companions, what the run offers."""
    given = (trainer.config, trainer.given_logger, trainer.storage, trainer.callbacks)
    companion = companions(trainer, parts).values()
    return [*parts, *companion, *given, trainer.run, *trainer.run.services()]


def companions(trainer: Trainer, parts: Iterable[object]) -> dict[str, object]:
    """Return what a script gave that is none of these parts; with a state to save it becomes one."""
    found = {f"callback.{name}": callback for name, callback in trainer.callbacks.items()}
    evaluator = trainer.evaluator
    given = {"evaluator": evaluator, "score": getattr(evaluator, "scorer", None)}
    given |= {"recorder": trainer.recorder}
    held = {id(one) for one in (None, trainer, *parts, *found.values())}
    return found | {f"given.{role}": one for role, one in given.items() if id(one) not in held}


class UnsavedStates:
    """Watches a trainer, and each of its companions that has no state of its own to save."""

    def __init__(self) -> None:
        self._watched: dict[str, UnsavedState] = {}

    def watch(self, trainer: Trainer, parts: Collection[object]) -> None:
        """Notice from now on what changes and is in none of the parts."""
        given = companions(trainer, parts)
        known = served(trainer, parts)
        self._watched = {"the trainer": UnsavedState(trainer, known=known)}
        known += [trainer, *vars(trainer).values()]
        for name, companion in given.items():
            if not isinstance(companion, Stateful):
                kind, _, own_name = name.partition(".")
                title = f"the {own_name} {type(companion).__name__}"
                title = f"the callback '{own_name}'" if kind == "callback" else title
                self._watched[title] = UnsavedState(companion, known=known)

    def reasons(self) -> list[str]:
        """Return a sentence for each owner of which something changed unsaved."""
        found = []
        for name, watched in self._watched.items():
            if changed := ", ".join(watched.changed()):
                is_companion = name != "the trainer"
                remedy = (
                    "give it state_dict and load_state_dict" if is_companion else "make it a part"
                )
                found.append(
                    f"{name} changes ({changed}), which is not saved; {remedy}, or name in its"
                    " `derived` what can be computed anew"
                )
        return found


class UnsavedState:
    """Watches one owner from now on; `changed` names the attributes that are not what they were.

    `known` are objects that are saved or served elsewhere. What was once seen to change is named for ever.
    """

    def __init__(self, owner: object, *, known: Iterable[object]) -> None:
        self._owner = owner
        self._ignored = derived_names(owner)
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

    def _summary(self, value: object, depth: int, seen: set[int]) -> Any:
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


def _is_machinery(value: object) -> bool:
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


def _generator_state(value: object) -> str | None:
    """Return the state of a generator of Python, NumPy or torch."""
    if hasattr(value, "bit_generator"):
        return repr(value.bit_generator.state)
    for name in ("getstate", "get_state"):
        if "rand" in type(value).__name__.lower() and hasattr(value, name):
            return repr(getattr(value, name)())
    if type(value).__name__ == "Generator" and hasattr(value, "get_state"):
        return repr(value.get_state().tolist())
    return None
