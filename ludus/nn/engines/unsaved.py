"""Detect state that a network changes as it runs and no checkpoint holds: plain attributes, not buffers."""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

OF_MODULES = frozenset(vars(nn.Module()))
"""Attributes that every module has."""
_HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks")]
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_MAX_DEPTH = 4
_MAX_ITEMS = 10_000


class PlainState:
    """Detects changes of plain attributes in objects of classes outside torch and ludus.

    Parameters, buffers and submodules do not count. State in a closure or a global variable is not detected.
    """

    def __init__(
        self,
        *owners: object,
        in_update: bool = False,
        known: tuple[str, ...] = (),
        layers: nn.Module | None = None,
    ) -> None:
        """Watch these objects and their submodules, except those of `known` packages.

        In the network `layers` the settings of torch's own layers are watched too.

        `in_update` looks for what no engine replays: saved state counts as well, and a tensor has changed if
        another one has replaced it, not if its values differ.
        """
        watched: list[object] = []
        for owner in owners:
            watched += owner.modules() if isinstance(owner, nn.Module) else [owner]
        self._watched = [
            thing
            for thing in watched
            if is_foreign(type(thing))
            and type(thing).__module__.partition(".")[0] not in known
            and hasattr(thing, "__dict__")
            and (in_update or not has_extra_state(type(thing)))
        ]
        # Tensors compared by identity are kept alive, so that no other gets the same id.
        self._kept: list[Tensor] | None = [] if in_update else None
        self._first = [_looks(thing, self._kept) for thing in self._watched]
        self.settings = None if layers is None else LayerSettings(layers)

    def changed(self) -> list[str]:
        """Return, for each object that has changed, its class and the changed attributes."""
        found = []
        for thing, first in zip(self._watched, self._first, strict=True):
            now = _looks(thing, self._kept)
            names = sorted(n for n in {*now, *first} if now.get(n) != first.get(n))
            if names:
                found.append(f"{type(thing).__qualname__} changes {', '.join(names)} as it runs")
        return list(dict.fromkeys(found))


class BoundTensors:
    """Detects replaced parameters and buffers of modules."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        self._parts = [part for module in modules for part in module.modules()]
        self._first = [_bound(part) for part in self._parts]

    def changed(self) -> list[str]:
        """Return, for each module with replaced tensors, its class and their names."""
        found = []
        for part, first in zip(self._parts, self._first, strict=True):
            now = _bound(part)
            names = [name for name in {**first, **now} if first.get(name) is not now.get(name)]
            if names:
                kind = type(part).__qualname__
                found.append(f"{kind} puts another tensor in the place of its {', '.join(names)}")
        return list(dict.fromkeys(found))


def _bound(part: nn.Module) -> dict[str, Tensor | None]:
    return {**part._parameters, **part._buffers}


class LayerSettings:
    """Detects changes to the modes, settings and hooks of torch's own layers.

    A dropout's `p`, a batch norm in eval mode, a hook: a script may change them during a run, and no
    checkpoint holds them.
    """

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._first = self._look()

    def _look(self) -> dict[str, dict[str, object]]:
        return {
            name: {
                **{key: value for key, value in vars(part).items() if isinstance(value, _PLAIN)},
                "hooks": [len(vars(part)[kind]) for kind in _HOOKS],
            }
            for name, part in self._network.named_modules()
            if not is_foreign(type(part))
        }

    def changed(self) -> list[str]:
        """Return, for each layer that has changed, its name and the changed attributes."""
        found = []
        for name, now in self._look().items():
            first = self._first.get(name)
            if first is not None and now != first:
                keys = [key for key in {**first, **now} if first.get(key) != now.get(key)]
                found.append(f"{', '.join(sorted(keys))} of the layer {name or 'at the top'}")
        return found


def unsaved(state: PlainState) -> list[str]:
    """Return why a run with such changes does not resume exactly."""
    found = [
        f"{changed}, which no checkpoint holds: make it a buffer, or write get_extra_state and"
        " set_extra_state"
        for changed in state.changed()
    ]
    if state.settings is not None and (settings := state.settings.changed()):
        more = f" and of {len(settings) - 1} more" if len(settings) > 1 else ""
        found.append(
            f"the run has changed {settings[0]}{more}, which no checkpoint holds: a resume begins with it as"
            " the network is built, until it is changed again; set it before fit, or in before_step from a"
            " counter"
        )
    return found


def is_foreign(kind: type) -> bool:
    """Return whether a class is neither torch's nor ludus's."""
    return not f"{kind.__module__}.".startswith(("torch.", "ludus."))


def has_extra_state(kind: type) -> bool:
    """Return whether a class of modules defines extra state."""
    keeps = getattr(kind, "get_extra_state", None)
    return keeps is not None and keeps is not nn.Module.get_extra_state


def _looks(thing: object, kept: list[Tensor] | None) -> dict[str, str]:
    """Return a digest of each attribute that holds plain data, tensors or generators."""
    found = {}
    for name, value in vars(thing).items():
        if name not in OF_MODULES:
            digest = hashlib.sha256()
            for piece in _pieces(value, _MAX_DEPTH, kept):
                digest.update(piece)
            found[name] = digest.hexdigest()
    return found


def _pieces(value: object, depth: int, kept: list[Tensor] | None) -> Iterator[bytes]:
    if isinstance(value, _PLAIN):
        yield f"{type(value).__name__} {value!r};".encode()
    elif isinstance(value, Tensor) and kept is not None:
        kept.append(value)
        yield f"{id(value)};".encode()
    elif isinstance(value, Tensor):
        yield f"{value.dtype} {value.layout} {tuple(value.shape)};".encode()
        # A sparse or quantised tensor counts only as present: a detector must not end a run.
        if value.layout == torch.strided and not value.is_quantized:
            value = value.detach().cpu().contiguous().reshape(-1)
            yield value.view(torch.uint8).numpy().tobytes()
    elif isinstance(value, np.ndarray) and value.dtype != object:
        yield f"{value.dtype} {value.shape};".encode() + value.tobytes()
    elif isinstance(value, torch.Generator):
        yield value.get_state().numpy().tobytes()
    elif isinstance(value, np.random.Generator):
        yield from _pieces(value.bit_generator.state, depth, kept)
    elif isinstance(value, random.Random):
        yield repr(value.getstate()).encode()
    elif depth and isinstance(value, Mapping):
        yield from _all(((key, item) for key, item in value.items()), depth, kept)
    elif depth and isinstance(value, list | tuple | deque):
        yield from _all(value, depth, kept)
    elif depth and isinstance(value, set | frozenset):
        yield from sorted(b"".join(_pieces(item, depth - 1, kept)) for item in value)
    else:
        # An object of any other type counts only as present.
        yield type(value).__qualname__.encode()


def _all(values: Iterable[Any], depth: int, kept: list[Tensor] | None) -> Iterator[bytes]:
    for number, value in enumerate(values):
        if number == _MAX_ITEMS:
            return
        yield b"["
        yield from _pieces(value, depth - 1, kept)
        yield b"]"
