"""Find the `before_x` and `after_x` methods of a trainer and its callbacks, and check that each fits."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ludus.core.errors import HookError, nearest
from ludus.core.plan import Repeat, hook_names, walk_nodes
from ludus.core.run import Run

_HOOK = re.compile(r"(before|after)_[a-z0-9_]+")
F = TypeVar("F", bound=Callable[..., Any])

Hooks = dict[str, tuple[Callable[[], None], ...]]


def empty_hook(method: F) -> F:
    """Mark a hook that does nothing, so that the loop need not call it."""
    method.__dict__["is_empty_hook"] = True
    return method


def bind_hooks(plan: Repeat, run: Run, owners: Sequence[object], *, base: type) -> Hooks:
    """Return the calls to make for every hook name of the plan, in the order of the owners.

    Hooks that `base` itself defines are not checked against the plan, so `super()` always works.
    """
    known = {name for node in walk_nodes(plan) for name in hook_names(node)}
    bound: dict[str, list[Callable[[], None]]] = {}
    for owner in owners:
        for name in _hooks_of(owner, base):
            if name not in known:
                raise HookError(
                    f"{type(owner).__name__}.{name} fits no node of this plan.{nearest(name, known)}"
                )
        is_called = isinstance(owner, base) or hasattr(owner, "state_dict")
        for name in sorted(known):
            method = getattr(owner, name, None)
            if callable(method) and not getattr(method, "is_empty_hook", False):
                bound.setdefault(name, []).append(_call(owner, name, method, run))
                is_called = True
        if not is_called:
            raise HookError(
                f"the callback {type(owner).__name__} has no hook, so it would never be called; give it"
                f" a method named after a node of the plan, as {sorted(known)[0]} is"
            )
    return {name: tuple(calls) for name, calls in bound.items()}


def _hooks_of(owner: object, base: type) -> Iterable[str]:
    classes = [cls for cls in type(owner).__mro__ if cls not in base.__mro__]
    names = {name for cls in classes for name in vars(cls)} | set(getattr(owner, "__dict__", ()))
    for name in sorted(names):
        # The class is asked first so that properties are not evaluated.
        value = inspect.getattr_static(owner, name, None)
        is_method = callable(value) or isinstance(value, staticmethod | classmethod)
        if _HOOK.fullmatch(name) and is_method:
            yield name


def _call(owner: object, name: str, method: Callable[..., None], run: Run) -> Callable[[], None]:
    parameters = [
        parameter
        for parameter in inspect.signature(method).parameters.values()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if not parameters:
        return method
    if len(parameters) == 1 and parameters[0].kind != parameters[0].KEYWORD_ONLY:
        return lambda: method(run)
    wanted = ", ".join(parameter.name for parameter in parameters)
    raise HookError(
        f"{type(owner).__name__}.{name}({wanted}) takes {len(parameters)} arguments;"
        " a hook takes nothing or the Run"
    )
