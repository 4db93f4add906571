"""Tell what kinds of objects hold: attributes, slots, class, closure, globals, position, memory.

Only what cannot run anybody's code is asked: no attribute that a class may compute, no iteration that a
class may define. torch and NumPy are known by the names of their classes alone.
"""

from __future__ import annotations

import array
import contextvars
import functools
import itertools
import os
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ludus.core import memory

_LIBRARIES = {"ludus", "torch", "numpy", "builtins", "tensordict", "torchrl", "gymnasium"}
_INSTALLED = {"site-packages", "dist-packages"}
# Objects of these show or log, or serve threads and processes: what they keep decides nothing.
_NOT_OPENED = {"tqdm", "rich", "wandb", "tensorboard", "matplotlib", "pydantic", "pydantic_core"}
# Objects of the standard library that hold what they were given.
_HOLDERS = {"types", "collections", "weakref", "queue", "argparse", "dataclasses"}
_IMMUTABLE = {"datetime", "decimal", "fractions", "uuid", "pathlib", "zoneinfo"}
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinMethodType, functools.partial)
CODE = (*_FUNCTIONS, type, types.ModuleType)
_WATCHED_THEMSELVES = {("ludus.core.trainer", "Trainer"), ("ludus.core.run", "Run")}
_TORCH_OPENED = ("torch.utils.data.", "torch.distributions.")

Opened = tuple[bytes, list[Any]]


@functools.cache
def is_of_user(module: str) -> bool:
    """Return whether a module is neither a library's nor of the standard library."""
    top = module.partition(".")[0]
    if top in _LIBRARIES or (top in sys.stdlib_module_names and top != "__main__"):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is None or not _INSTALLED & {*Path(file).parts}


@functools.lru_cache(maxsize=4096)
def _is_opened(kind: type) -> bool:
    module = kind.__module__
    top = module.partition(".")[0]
    if any((one.__module__, one.__name__) in _WATCHED_THEMSELVES for one in kind.__mro__):
        return False
    if issubclass(kind, CODE) or getattr(kind, "model_config", {}).get("frozen"):
        return False
    if top == "torch":
        return _is_network(kind) or f"{module}.".startswith(_TORCH_OPENED)
    if top in sys.stdlib_module_names and top != "__main__":
        return top in _HOLDERS
    return top not in _NOT_OPENED


def is_instance(value: object) -> bool:
    """Return whether a value is an object with attributes that count: no code, nothing that shows."""
    kind: Any = type(value)
    return _is_opened(kind)


def attributes(value: object) -> Iterator[tuple[str, Any]]:
    """Yield what an object keeps in its dict and its slots, but for what its classes call `derived`."""
    kind: Any = type(value)
    ignored, slots = _layout(kind)
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict):
        yield from [(str(name), item) for name, item in own.items() if name not in ignored]
    for name, slot in slots:
        try:
            yield name, slot.__get__(value)
        except AttributeError:
            continue


@functools.lru_cache(maxsize=4096)
def _layout(kind: type) -> tuple[frozenset[str], tuple[tuple[str, Any], ...]]:
    """Return the attributes of a class's objects that do not count, and its slots that do."""
    ignored = _derived(kind) | (_not_of_module() if _is_network(kind) else frozenset())
    slots = [
        (name, slot)
        for one in kind.__mro__
        for name, slot in vars(one).items()
        if isinstance(slot, types.MemberDescriptorType) and name not in ignored
    ]
    return ignored, tuple(slots)


@functools.cache
def _not_of_module() -> frozenset[str]:
    """Return the attributes of a torch network besides its tensors and networks."""
    # Which mode it is in, and who listens to it, is set anew by whoever uses it.
    module = sys.modules["torch"].nn.Module()
    return frozenset(vars(module)) - {"_parameters", "_buffers", "_modules"}


@functools.lru_cache(maxsize=4096)
def _derived(kind: type) -> frozenset[str]:
    return frozenset(name for one in kind.__mro__ for name in vars(one).get("derived", ()))


def derived_names(owner: object) -> frozenset[str]:
    """Return the attributes that the owner's classes say can be computed anew."""
    kind: Any = type(owner)
    return _derived(kind)


def class_attributes(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield what a class of the user's, and its bases, keep for all objects."""
    for one in kind.__mro__:
        if is_of_user(one.__module__):
            for name, value in list(vars(one).items()):
                is_plumbing = name.startswith(("__", "_abc_")) or name in ("derived", "Config")
                if isinstance(value, types.FunctionType) or not (is_plumbing or _is_slot(value)):
                    yield f"{one.__name__}.{name}", value


def _is_slot(value: object) -> bool:
    return isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)


def references(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a function of the user's keeps: in closure, defaults, itself, its module's globals."""
    if not is_of_user(function.__module__ or ""):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        try:
            yield name, cell.cell_contents
        except ValueError:
            continue
    for number, value in enumerate(function.__defaults__ or ()):
        yield f"{function.__name__}.__defaults__[{number}]", value
    yield from (function.__kwdefaults__ or {}).items()
    yield from vars(function).items()
    yield from _globals_of(function)


def _globals_of(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    names, known = _names_in(function.__code__), function.__globals__
    for name in names:
        value = known.get(name)
        if isinstance(value, types.ModuleType):
            inside = vars(value)
            if value is os:
                yield from [("os.environ", dict(os.environ))] if "environ" in names else []
            elif is_of_user(value.__name__):
                yield from (
                    (f"{name}.{other}", inside[other]) for other in names if other in inside
                )
        elif name in known:
            yield name, value


@functools.cache
def _names_in(code: types.CodeType) -> tuple[str, ...]:
    """Return the global and attribute names in a function, and in those written inside it."""
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(n for one in inner for n in _names_in(one))]))


def opened(value: object) -> Opened | None:
    """Return what an object that is no container is compared by, and what it holds; None: by nothing."""
    for kind, opens in _OPENERS:
        if isinstance(value, kind):
            return opens(value)
    if (state := memory.generator_state(value)) is not None:
        return b"", [state]
    module, is_iterator = type(value).__module__, hasattr(type(value), "__next__")
    top = module.partition(".")[0]
    if top in _IMMUTABLE:
        return repr(value).encode(), []
    if is_iterator and top in ("builtins", "itertools"):
        return b"", [_position(value)]
    if top == "torch" and not is_instance(value) and hasattr(type(value), "state_dict"):
        return b"", [getattr(value, "state_dict")()]  # noqa: B009
    if top in ("_io", "io"):
        return _file(value)
    if not is_instance(value):
        return None
    found = [item for pair in attributes(value) for item in pair]
    return b"", [*found, *([type(value)] if is_of_user(module) else [])]


def _of_function(value: types.FunctionType) -> Opened:
    return value.__qualname__.encode(), [item for _, item in references(value)]


def _of_method(value: types.MethodType) -> Opened:
    return b"", [value.__self__, value.__func__]


def _of_builtin(value: types.BuiltinMethodType) -> Opened:
    owner = value.__self__
    return value.__name__.encode(), [] if isinstance(owner, types.ModuleType) else [owner]


def _of_partial(value: functools.partial[Any]) -> Opened:
    return b"", [value.func, value.args, value.keywords, vars(value)]


def _of_class(value: type) -> Opened:
    inside = [item for _, item in class_attributes(value)]
    return value.__qualname__.encode(), [function_of(item) for item in inside]


def function_of(value: object) -> Any:
    """Return the function of what a class keeps a method in."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return value


def _of_generator(value: types.GeneratorType[Any, Any, Any]) -> Opened:
    frame = value.gi_frame
    if frame is None:
        return b"ended", []
    return b"at %d" % frame.f_lasti, [dict(frame.f_locals), value.gi_yieldfrom]


def _of_module(value: types.ModuleType) -> Opened:
    return value.__name__.encode(), []


_OPENERS: tuple[tuple[Any, Callable[[Any], Opened]], ...] = (
    (types.FunctionType, _of_function),
    (types.MethodType, _of_method),
    (types.BuiltinMethodType, _of_builtin),
    (functools.partial, _of_partial),
    (type, _of_class),
    (types.ModuleType, _of_module),
    (types.GeneratorType, _of_generator),
    (types.MappingProxyType, lambda value: (b"", [dict(value)])),
    (bytearray | memoryview | array.array, lambda value: (b"", [bytes(value)])),
    (weakref.ref, lambda value: (b"", [value()])),
    (contextvars.ContextVar, lambda value: (b"", [value.get(None)])),
    # What is remembered of answers decides none.
    (functools._lru_cache_wrapper, lambda value: (b"", [value.__wrapped__])),
)


def _position(value: object) -> Any:
    """Return where an iterator stands, without advancing it."""
    if isinstance(value, itertools.count | itertools.repeat):
        return repr(value)
    with warnings.catch_warnings():
        # Python 3.12 and 3.13 warn that what itertools say of themselves will go.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            return list(value.__reduce__()[1:])
        except TypeError:
            hint = getattr(type(value), "__length_hint__", None)
            return None if hint is None else hint(value)


def _file(given: object) -> Opened | None:
    """Return where a file that is read stands; what is written to a file decides nothing."""
    value: Any = given
    if hasattr(value, "getvalue"):
        return b"at %d" % value.tell(), [value.getvalue()]
    if value.closed or value.writable() or not value.seekable():
        return None
    raw = getattr(value, "buffer", value)
    return b"at %d" % raw.tell(), []


def _is_network(kind: type) -> bool:
    return hasattr(kind, "named_parameters")
