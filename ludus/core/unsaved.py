"""Detect unsaved state: attributes of the trainer and its companions that change but are in no part."""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ludus.core import kinds, memory
from ludus.core.authors import is_of_user
from ludus.core.object_walker import ObjectWalker
from ludus.core.run import Stateful

if TYPE_CHECKING:
    from ludus.core.trainer import Trainer

Digests = dict[str, bytes]


def companions(trainer: Trainer, parts: Iterable[object]) -> dict[str, object]:
    """Return the objects a script gave that are none of these parts; those with state become parts."""
    found = {f"callback.{name}": callback for name, callback in trainer.callbacks.items()}
    evaluator = trainer.evaluator
    given = {"evaluator": evaluator, "score": getattr(evaluator, "scorer", None)}
    given |= {"recorder": trainer.recorder}
    consulted = {role: _owner(one) for role, one in trainer.consulted().items()}
    given |= {role: one for role, one in consulted.items() if _is_of_user(one)}
    held = {id(one) for one in (None, trainer, *parts, *found.values())}
    return found | {f"given.{role}": one for role, one in given.items() if id(one) not in held}


def saved_companions(trainer: Trainer, parts: Iterable[object]) -> dict[str, Stateful]:
    """Return the companions that become parts because they have a state_dict."""
    once = {f"given.{role}" for role in trainer.asked_once}
    found = companions(trainer, parts).items()
    return {name: one for name, one in found if isinstance(one, Stateful) and name not in once}


def _owner(one: object) -> object:
    """Return the object that a method is bound to, or the object itself."""
    return one.__self__ if isinstance(one, types.MethodType) else one


def _is_of_user(one: object) -> bool:
    is_function = isinstance(one, types.FunctionType)
    module = one.__module__ if is_function else type(one).__module__
    return is_of_user(module or "") or module == "functools"


class UnsavedStates:
    """Watches a trainer and each of its companions that saves no state of its own."""

    def __init__(self) -> None:
        self._trainer: Trainer | None = None
        self._once: tuple[str, ...] = ()
        self._first: dict[str, Digests] = {}
        self._found: dict[str, dict[str, None]] = {}
        self._reported: set[str] = set()
        self._looked_at: tuple[object, ...] = ()

    def watch(self, trainer: Trainer) -> None:
        """Start watching for changes outside the parts."""
        self._trainer, self._found, self._once = trainer, {}, trainer.asked_once
        self._first, self._looked_at = self._look(), _instant(trainer)

    def changed(self) -> dict[str, list[str]]:
        """Return, by owner, every attribute ever seen to change; each boundary is inspected once."""
        now: dict[str, Digests] = {}
        if self._trainer is not None and self._looked_at != _instant(self._trainer):
            now, self._looked_at = self._look(), _instant(self._trainer)
        for owner, digests in now.items():
            _note(
                self._first.setdefault(owner, digests), digests, self._found.setdefault(owner, {})
            )
        return {owner: list(names) for owner, names in self._found.items() if names}

    def reasons(self) -> list[str]:
        """Return a sentence for each owner with unsaved changes."""
        found = []
        for owner, names in self.changed().items():
            remedy = (
                "make it a part"
                if owner == "the trainer"
                else "give it state_dict and load_state_dict"
            )
            if any(owner.startswith(f"the {role} ") for role in self._once):
                remedy = "let answers depend on what is asked alone, for none is asked for again"
            elif owner.startswith(("the class ", "the object ")):
                remedy = "register it, or save it with a state_dict or get_extra_state of its own"
            named = ", ".join(f'"{_attribute(name)}"' for name in names)
            found.append(
                f"{owner} changes ({', '.join(names)}), which is not saved; {remedy}, or, if it decides"
                f" nothing, name it in the class: derived = [{named}]"
            )
        return found

    def _look(self) -> dict[str, Digests]:
        trainer = self._trainer
        assert trainer is not None
        parts = [*trainer.all_parts().values()]
        owners = {"the trainer": trainer, **_unsaved_companions(trainer, parts)}
        kind: Any = type(trainer)
        derived = [vars(trainer).get(name) for name in kinds.derived_of(kind)]
        kept = {id(one) for one in parts}
        # Managed elsewhere.
        given = (trainer.config, trainer.given_logger, trainer.storage, trainer.callbacks)
        served = [*companions(trainer, parts).values(), *given, *trainer.run.services()]
        known = [one for one in served if id(one) not in kept]
        look = ObjectWalker([*known, *memory.global_generators(), *owners.values()])
        look.leave_out([*parts, *derived])
        watched = {title: _read(_entries(owner), owner) for title, owner in owners.items()}
        for kind in look.classes:
            if not hasattr(kind, "__getitem__") and not _saves_itself(kind):
                watched[f"the class {kind.__name__}"] = _read(_class_entries(kind), kind)
        for (kind_name, name), values in look.own.items():
            watched.setdefault(f"the object {kind_name}", {})[name] = values
        return {title: self._digests(title, entries, look) for title, entries in watched.items()}

    def _digests(self, title: str, entries: Mapping[str, Any], look: ObjectWalker) -> Digests:
        found: Digests = {}
        for name, value in sorted(entries.items()):
            look.was_cut = False
            for attribute, digest in look.digests(value).items():
                found[f"{name}.{attribute}" if attribute else name] = digest
            if look.was_cut and f"{title}: {name}" not in self._reported:
                self._reported.add(f"{title}: {name}")
                assert self._trainer is not None
                self._trainer.run.tell(
                    f"{title} holds more in `{name}` than is compared at each save, so that a change in"
                    " it may not be seen; if it matters, save it: make it a part",
                    event="watched_in_part",
                )
        return found


def _instant(trainer: Trainer) -> tuple[object, ...]:
    """Return a value that differs whenever something may have happened."""
    run = trainer.run
    return run.boundaries, run.is_pending, run.is_pausing, run.is_finished


def _read(entries: Iterator[tuple[str, Any]], owner: object) -> dict[str, Any]:
    """Return the readable entries of an owner, each once: an error in an unknown class must not end a run."""
    found: dict[str, Any] = {}
    try:
        found.update(entries)
    except Exception:
        found["itself"] = type(owner).__qualname__
    return found


def _attribute(name: str) -> str:
    """Return the name to put in `derived`, for `box.count` or `count in after_step`."""
    return name.partition(" in ")[0].partition(".")[0]


def _unsaved_companions(trainer: Trainer, parts: Iterable[object]) -> dict[str, object]:
    found, saved = {}, saved_companions(trainer, parts)
    for name, companion in companions(trainer, parts).items():
        if name not in saved:
            kind, _, own_name = name.partition(".")
            role = f"the {own_name} {getattr(companion, '__name__', type(companion).__name__)}"
            found[f"the callback '{own_name}'" if kind == "callback" else role] = companion
    return found


class UnsavedState:
    """Watches one owner; `changed` names the attributes that differ from their first values.

    `known` are objects that are saved or managed elsewhere. An attribute once seen to change stays named.
    """

    def __init__(self, owner: object, *, known: Iterable[object]) -> None:
        self._owner, self._known = owner, [*known, *memory.global_generators()]
        self._found: dict[str, None] = {}
        self._first = self._look()

    def changed(self) -> list[str]:
        """Return the names of all attributes seen to change."""
        _note(self._first, self._look(), self._found)
        return list(self._found)

    def _look(self) -> Digests:
        look = ObjectWalker([self._owner])
        look.leave_out(self._known)
        entries = dict(_entries(self._owner))
        return {name: look.digest(entries[name]) for name in sorted(entries)}


def _note(first: Digests, now: Digests, found: dict[str, None]) -> None:
    for name in sorted({*first, *now}):
        # If an object was replaced as a whole, its attributes have changed as well.
        is_named = name.rpartition(".")[0] in found
        if first.get(name) != now.get(name) and not is_named:
            found[name] = None


def _entries(owner: object) -> Iterator[tuple[str, Any]]:
    """Yield the state of an object or a function by name."""
    owner = _owner(owner)
    if isinstance(owner, types.FunctionType):
        yield from kinds.references(owner)
    elif isinstance(owner, kinds.CODE) or not (
        memory.has_dict(type(owner)) or kinds.is_instance(owner)
    ):
        yield "itself", owner
    else:
        yield from kinds.attributes(owner)
        yield from _class_entries(type(owner))


def _class_entries(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the class attributes of a user's class, and what its methods refer to."""
    ignored = kinds.derived_of(kind)
    for name, value in kinds.class_attributes(kind):
        value = kinds.function_of(value)
        if not isinstance(value, types.FunctionType):
            yield name, value
            continue
        for other, item in kinds.references(value):
            if other not in ignored:
                yield f"{other} in {value.__name__}", item


def _saves_itself(kind: type) -> bool:
    """Return whether a user's class defines its own state, which may include the class's attributes."""
    if hasattr(kind, "state_dict"):
        return kinds.saved_names(kind) is None
    # As an env does.
    return hasattr(kind, "get_state") and hasattr(kind, "set_state")
