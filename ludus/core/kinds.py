"""Determine what an object holds, by its kind: attributes, slots, class, closure, globals, position, memory.

Nothing here runs foreign code: no computed attribute is read and no custom iteration is started.
torch and NumPy objects are recognised by their class names alone.
"""

from __future__ import annotations

import array
import contextvars
import functools
import gc
import os
import sys
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ludus.core import memory
from ludus.core.authors import is_of_user, is_third_party
from ludus.core.memory import Opened

# Their objects display or log, or serve threads and processes: their state does not affect the run.
_NOT_OPENED = {"tqdm", "rich", "wandb", "tensorboard", "matplotlib", "pydantic", "pydantic_core"}
# Modules of the standard library whose objects hold what they were given.
_HOLDERS = {"types", "collections", "weakref", "queue", "argparse", "dataclasses"}
_IMMUTABLE = {"datetime", "decimal", "fractions", "uuid", "pathlib", "zoneinfo"}
_FUNCTIONS = (types.FunctionType, types.MethodType, types.BuiltinMethodType, functools.partial)
_HAS_COST = sys.version_info < (3, 13)
_PLUMBING = {"__dict__", "__weakref__"}
CODE = (*_FUNCTIONS, type, types.ModuleType)
_WATCHED_THEMSELVES = {("ludus.core.trainer", "Trainer"), ("ludus.core.run", "Run")}
_TORCH_OPENED = ("torch.utils.data.", "torch.distributions.")

_NAMES = (tuple, list, set, frozenset)


@functools.lru_cache(maxsize=4096)
def _is_opened(kind: type) -> bool:
    module = kind.__module__
    top = module.partition(".")[0]
    if any((one.__module__, one.__name__) in _WATCHED_THEMSELVES for one in kind.__mro__):
        return False
    config = next(
        (vars(one)["model_config"] for one in kind.__mro__ if "model_config" in vars(one)), 0
    )
    if issubclass(kind, CODE) or (isinstance(config, dict) and config.get("frozen") is True):
        return False
    if top == "torch":
        return _is_network(kind) or f"{module}.".startswith(_TORCH_OPENED)
    if top in sys.stdlib_module_names and top != "__main__":
        return top in _HOLDERS
    if is_third_party(module):
        # Most of these measure, log or wait.
        return hasattr(kind, "state_dict") or _is_network(kind)
    return top not in _NOT_OPENED


def is_instance(value: object) -> bool:
    """Return whether a value is an object whose attributes matter: neither code nor a display or logger."""
    kind: Any = type(value)
    return _is_opened(kind)


def attributes(value: object) -> Iterator[tuple[str, Any]]:
    """Yield the attributes in an object's dict and slots, except those its classes name in `derived`."""
    kind: Any = type(value)
    ignored, slots = layout(kind)
    own = getattr(value, "__dict__", None)
    if isinstance(own, dict):
        yield from [(str(name), item) for name, item in own.items() if name not in ignored]
    for name, slot in slots:
        try:
            yield name, slot.__get__(value)
        except AttributeError:
            continue


def attribute_values(thing: object) -> list[Any]:
    """Return the values of an object's attributes; for most classes also those named in `derived`.

    Up to CPython 3.12 the attributes of an instance are stored in an array. Reading its `__dict__` moves
    them into a dict for good, and each later access is slower: 4 to 6% of an RL run where every part was
    read once.
    """
    kind: Any = type(thing)
    if _HAS_COST and not _needs_names(kind):
        found = [one for one in gc.get_referents(thing) if one is not kind]
        # An object with a dict refers to nothing else, and reading that dict moves nothing.
        if len(found) != 1:
            return found
    return [value for _, value in attributes(thing)]


@functools.lru_cache(maxsize=4096)
def _needs_names(kind: type) -> bool:
    """Return whether some attributes of a class must be distinguished by name."""
    ignored, slots = layout(kind)
    return bool(slots) or not ignored <= derived_of(kind) | _PLUMBING


@functools.lru_cache(maxsize=4096)
def layout(kind: type) -> tuple[frozenset[str], tuple[tuple[str, Any], ...]]:
    """Return the attribute names to ignore for a class, and the slots to read."""
    ignored = derived_of(kind) | (_not_of_module() if _is_network(kind) else frozenset())
    found = [pair for one in kind.__mro__ for pair in vars(one).items()]
    ignored |= {name for name, item in found if isinstance(item, functools.cached_property)}
    ignored |= _PLUMBING
    if _is_loader(kind) and not hasattr(kind, "state_dict"):
        # The read-ahead of its workers, and a cached length.
        ignored |= {"_iterator", "_IterableDataset_len_called"}
    slots = [
        (name, slot)
        for name, slot in found
        if isinstance(slot, types.MemberDescriptorType) and name not in ignored
    ]
    return ignored, tuple(slots)


@functools.cache
def _not_of_module() -> frozenset[str]:
    """Return the attributes of a torch network other than its tensors and subnetworks."""
    # Mode and hooks are set again by the code that uses the network.
    module = sys.modules["torch"].nn.Module()
    return frozenset(vars(module)) - {"_parameters", "_buffers", "_modules"}


@functools.lru_cache(maxsize=4096)
def derived_of(kind: type) -> frozenset[str]:
    """Return the attributes that a class declares as recomputable, in `derived`."""
    named = [vars(one).get("derived", ()) for one in kind.__mro__]
    named = [(names,) if isinstance(names, str) else names for names in named]
    return frozenset(n for names in named if isinstance(names, _NAMES) for n in names)


@functools.lru_cache(maxsize=4096)
def saved_names(kind: type) -> frozenset[str] | None:
    """Return the attributes covered by the state_dict that a user's class inherits; None means all.

    For a network these are its tensors and subnetworks; for other classes every name in the library's code.
    """
    writers = [one for one in kind.__mro__ if "state_dict" in vars(one)]
    if not writers or is_of_user(writers[0].__module__):
        return None
    if _is_network(kind):
        keeps = next(one for one in kind.__mro__ if "get_extra_state" in vars(one))
        own = None if is_of_user(keeps.__module__) else {"_parameters", "_buffers", "_modules"}
        return own if own is None else frozenset(own)
    libraries = [one for one in kind.__mro__ if not is_of_user(one.__module__)]
    functions = [function_of(item) for one in libraries for item in vars(one).values()]
    codes = [one.__code__ for one in functions if isinstance(one, types.FunctionType)]
    return frozenset(name for code in codes for name in _names_in(code))


def hooks_of(value: object) -> list[types.FunctionType]:
    """Return the user's functions that a network calls as forward or backward hooks."""
    if not _is_network(type(value)):
        return []
    named = [
        vars(value).get(f"_{name}_hooks", {}) for name in ("forward_pre", "forward", "backward")
    ]
    hooks = [hook for found in named for hook in found.values()]
    return [hook for hook in hooks if isinstance(hook, types.FunctionType)]


def has_state(value: object) -> bool:
    """Return whether a value is an object with attributes, or with a state_dict, that may change."""
    return memory.memory_of(value) is None and (
        hasattr(type(value), "state_dict") or (is_instance(value) and memory.has_dict(type(value)))
    )


def class_attributes(kind: type) -> Iterator[tuple[str, Any]]:
    """Yield the class attributes of a user's class and its bases, except those named in `derived`."""
    ignored = {"derived", "Config", *derived_of(kind)}
    for one in kind.__mro__:
        if is_of_user(one.__module__):
            for name, value in list(vars(one).items()):
                is_plumbing = name.startswith(("__", "_abc_")) or name in ignored
                if isinstance(value, types.FunctionType) or not (is_plumbing or _is_slot(value)):
                    yield f"{one.__name__}.{name}", value


def _is_slot(value: object) -> bool:
    return isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)


def references(function: types.FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield what a user's function refers to: closure, defaults, attributes, globals of its module."""
    if not is_of_user(function.__module__ or ""):
        return
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":
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
    """Return the global and attribute names used in a function and in the functions nested in it."""
    inner = [one for one in code.co_consts if isinstance(one, types.CodeType)]
    return tuple(dict.fromkeys([*code.co_names, *(n for one in inner for n in _names_in(one))]))


def opened(value: object) -> Opened | None:
    """Return what a non-container is compared by, and the objects in it; None: its attributes, if any."""
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
        return b"", [memory.position(value)]
    if top == "torch" and not is_instance(value) and hasattr(type(value), "state_dict"):
        return b"", [getattr(value, "state_dict")()]  # noqa: B009
    if top in ("_io", "io"):
        return memory.of_file(value)
    return None


def is_own(value: object) -> bool:
    """Return whether a value is an object of a user's class."""
    return is_instance(value) and is_of_user(type(value).__module__)


def name_of(value: object) -> str:
    """Return the name of a class, a function or a module."""
    return str(getattr(value, "__qualname__", type(value).__name__))


def function_of(value: object) -> Any:
    """Return the function inside a method wrapper such as staticmethod or property."""
    if isinstance(value, property):
        return value.fget
    if isinstance(value, staticmethod | classmethod):
        return value.__func__
    return value


def _of_builtin(value: types.BuiltinMethodType) -> Opened:
    owner = value.__self__
    return value.__name__.encode(), [] if isinstance(owner, types.ModuleType) else [owner]


def _encoded(value: type | types.FunctionType) -> bytes:
    return value.__qualname__.encode()


_OPENERS: tuple[tuple[Any, Callable[[Any], Opened]], ...] = (
    (types.FunctionType, lambda one: (_encoded(one), [item for _, item in references(one)])),
    (types.MethodType, lambda one: (b"", [one.__self__, one.__func__])),
    (types.BuiltinMethodType, _of_builtin),
    (functools.partial, lambda one: (b"", [one.func, one.args, one.keywords, vars(one)])),
    (type, lambda one: (_encoded(one), [function_of(item) for _, item in class_attributes(one)])),
    (types.ModuleType, lambda one: (one.__name__.encode(), [])),
    (types.GeneratorType, memory.of_generator),
    (types.MappingProxyType, lambda value: (b"", [dict(value)])),
    (bytearray | memoryview | array.array, lambda value: (b"", [bytes(value)])),
    (weakref.ref, lambda value: (b"", [value()])),
    (contextvars.ContextVar, lambda value: (b"", [value.get(None)])),
    # A cache of results does not affect them.
    (functools._lru_cache_wrapper, lambda value: (b"", [value.__wrapped__])),
)


def _is_loader(kind: type) -> bool:
    names = {(one.__module__, one.__name__) for one in kind.__mro__}
    return ("torch.utils.data.dataloader", "DataLoader") in names


def _is_network(kind: type) -> bool:
    return hasattr(kind, "named_parameters")
