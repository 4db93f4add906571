"""Bind hooks: find `before_x` and `after_x` methods of a trainer and its callbacks, and check each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from ludus.core.errors import HookError, nearest
from ludus.core.overrides import check_overrides
from ludus.core.plan import Repeat, hook_names, walk_nodes
from ludus.core.run import Run

_HOOK = re.compile(r"(before|after)_[a-z0-9_]+")
F = TypeVar("F", bound=Callable[..., Any])

Hooks = dict[str, tuple[Callable[[], None], ...]]
Offers = Mapping[str, Mapping[str, Callable[[Run], Any]]]
"""By hook name and parameter name: the value to pass instead of the Run."""


def empty_hook(method: F) -> F:
    """Mark a hook as empty, so that the loop skips it."""
    method.__dict__["is_empty_hook"] = True
    return method


def bind_hooks(
    plan: Repeat, run: Run, owners: Sequence[object], *, base: type, offers: Offers | None = None
) -> Hooks:
    """Return the calls to make for every hook name of the plan, in the order of the owners.

    A hook takes no argument, the Run, or what is offered under the name of its parameter, such as the
    `info` of the round that ended if the node has one. Hooks that `base` itself defines are not
    checked against the plan, so `super()` always works.
    """
    known = {name for node in walk_nodes(plan) for name in hook_names(node)}
    offered = {name: dict(values) for name, values in (offers or {}).items()}
    for node in walk_nodes(plan):
        if isinstance(node, Repeat) and node.info is not None:
            offered.setdefault(hook_names(node)[1], {})["info"] = node.info
    bound: dict[str, list[Callable[[], None]]] = {}
    for owner in owners:
        for name in _hooks_of(owner, base):
            if name not in known:
                raise HookError(
                    f"{type(owner).__name__}.{name} fits no node of this plan.{nearest(name, known)}"
                )
        if isinstance(owner, base):
            check_overrides(owner, plan)
        is_called = isinstance(owner, base) or hasattr(owner, "state_dict")
        for name in sorted(known):
            method = getattr(owner, name, None)
            if callable(method) and not getattr(method, "is_empty_hook", False):
                bound.setdefault(name, []).append(
                    _call(owner, name, method, run, offered.get(name, {}))
                )
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
        # Static lookup, so that properties are not evaluated.
        value = inspect.getattr_static(owner, name, None)
        is_method = callable(value) or isinstance(value, staticmethod | classmethod)
        if _HOOK.fullmatch(name) and is_method:
            yield name


def _call(
    owner: object,
    name: str,
    method: Callable[..., None],
    run: Run,
    offered: Mapping[str, Callable[[Run], Any]],
) -> Callable[[], None]:
    parameters = [
        parameter
        for parameter in inspect.signature(method).parameters.values()
        if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and (parameter.default is parameter.empty or parameter.name in offered)
    ]
    if not parameters:
        return method
    names = [parameter.name for parameter in parameters]
    runs = [name for name in names if name not in offered]
    # A hook that takes only the Run gets it by position, all others by keyword.
    wrong = parameters[0].KEYWORD_ONLY if names == runs else parameters[0].POSITIONAL_ONLY
    if len(runs) > 1 or "info" in runs or any(one.kind == wrong for one in parameters):
        choices = ["nothing", "the Run", *(f"a parameter named {name}" for name in sorted(offered))]
        raise HookError(
            f"{type(owner).__name__}.{name}({', '.join(names)}) takes"
            f" {_count(len(names))}; this hook takes {' or '.join(choices)}"
        )
    if names == runs:
        return lambda: method(run)
    given = {name: offered.get(name, _the_run) for name in names}
    return lambda: method(**{name: value(run) for name, value in given.items()})


def _the_run(run: Run) -> Run:
    return run


def _count(number: int) -> str:
    return "1 argument" if number == 1 else f"{number} arguments"
