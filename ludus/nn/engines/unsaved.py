"""Find what a network changes as it computes without its being saved: plain attributes, unlike buffers."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

_OWN = set(vars(nn.Module()))
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MAX_DEPTH = 4
_MAX_ITEMS = 10_000


class PlainState:
    """Compares the plain attributes of objects from outside torch and ludus with those they began with.

    Parameters, buffers and modules inside are not among them. What hides in a closure or in a global
    variable is not found.
    """

    def __init__(self, *owners: object, saved_too: bool = False) -> None:
        """Watch these objects, and the modules inside; `saved_too` those with extra state as well."""
        watched: list[object] = []
        for owner in owners:
            watched += owner.modules() if isinstance(owner, nn.Module) else [owner]
        self._watched = [
            thing
            for thing in watched
            if is_foreign(type(thing)) and (saved_too or not _has_extra_state(type(thing)))
        ]
        self._first = [_looks(thing) for thing in self._watched]

    def changed(self) -> list[str]:
        """Return, for each object that has changed, its class and the attributes that did."""
        found = []
        for thing, first in zip(self._watched, self._first, strict=True):
            now = _looks(thing)
            names = sorted(n for n in {*now, *first} if now.get(n) != first.get(n))
            if names:
                found.append(f"{type(thing).__qualname__} changes {', '.join(names)} as it runs")
        return list(dict.fromkeys(found))


def unsaved(state: PlainState) -> list[str]:
    """Return why a run with such changes is not exact."""
    return [
        f"{changed}, which no checkpoint holds: make it a buffer, or write get_extra_state and"
        " set_extra_state"
        for changed in state.changed()
    ]


def is_foreign(kind: type) -> bool:
    """Return whether a class is neither torch's nor ludus's."""
    return not f"{kind.__module__}.".startswith(("torch.", "ludus."))


def _has_extra_state(kind: type) -> bool:
    keeps = getattr(kind, "get_extra_state", None)
    return keeps is not None and keeps is not nn.Module.get_extra_state


def _looks(thing: object) -> dict[str, str]:
    """Return a digest of each attribute that holds plain data, tensors or generators."""
    found = {}
    for name, value in vars(thing).items():
        if name not in _OWN:
            digest = hashlib.sha256()
            for piece in _pieces(value, _MAX_DEPTH):
                digest.update(piece)
            found[name] = digest.hexdigest()
    return found


def _pieces(value: object, depth: int) -> Iterator[bytes]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r};".encode()
    elif isinstance(value, Tensor):
        yield f"{value.dtype} {value.layout} {tuple(value.shape)};".encode()
        # Of a sparse or quantised one only that it is there: a watcher must not end a run.
        if value.layout == torch.strided and not value.is_quantized:
            value = value.detach().cpu().contiguous().reshape(-1)
            yield value.view(torch.uint8).numpy().tobytes()
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype} {value.shape};".encode() + value.tobytes()
    elif isinstance(value, torch.Generator):
        yield value.get_state().numpy().tobytes()
    elif isinstance(value, np.random.Generator):
        yield from _pieces(value.bit_generator.state, depth)
    elif isinstance(value, random.Random):
        yield repr(value.getstate()).encode()
    elif depth and isinstance(value, Mapping):
        yield from _all(((key, item) for key, item in value.items()), depth)
    elif depth and isinstance(value, list | tuple | deque):
        yield from _all(value, depth)
    elif depth and isinstance(value, set | frozenset):
        yield from sorted(b"".join(_pieces(item, depth - 1)) for item in value)
    else:
        # An object of any other kind: only that it is there.
        yield type(value).__qualname__.encode()


def _all(values: Iterable[Any], depth: int) -> Iterator[bytes]:
    for number, value in enumerate(values):
        if number == _MAX_ITEMS:
            return
        yield b"["
        yield from _pieces(value, depth - 1)
        yield b"]"
