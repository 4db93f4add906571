"""Detect state that a network changes as it runs and no checkpoint holds: plain attributes, not buffers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from zlib import crc32

from torch import Tensor, nn

from ludus.core.containers import PLAIN
from ludus.core.memory import bytes_of
from ludus.core.object_walker import ObjectWalker

OF_MODULES = frozenset(vars(nn.Module()))
"""Attributes that every module has."""
_HOOKS = [name for name in vars(nn.Module()) if name.endswith("_hooks")]

Looks = Mapping[str, object]


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

        In the network `layers` the modes, settings and hooks of torch's own layers are watched too: a
        dropout's `p`, a batch norm in eval mode. A script may change them, and no checkpoint holds them.

        `in_update` looks for what no engine replays: saved state counts as well, and a tensor, also a
        parameter or a buffer, has changed if another one has replaced it, not if its values differ.
        """
        watched: list[object] = []
        for owner in owners:
            watched += owner.modules() if isinstance(owner, nn.Module) else [owner]
        foreign = [
            thing
            for thing in watched
            if is_foreign(type(thing))
            and type(thing).__module__.partition(".")[0] not in known
            and hasattr(thing, "__dict__")
            and (in_update or not has_extra_state(type(thing)))
        ]
        modules = [one for one in watched if isinstance(one, nn.Module)] if in_update else []
        self._read = self._identity if in_update else _whole
        # Tensors compared by identity are kept alive, so that no other gets the same id.
        self._kept: dict[int, Tensor] = {}
        self._plain = _Compared(lambda: _each(foreign, self._attributes))
        self._bound = _Compared(lambda: _each(modules, self._tensors))
        self._settings = _Compared(lambda: {} if layers is None else _settings(layers))

    def _attributes(self, thing: object) -> Looks:
        walker, own = ObjectWalker(opens_objects=False, read=self._read), vars(thing).items()
        return {name: walker.digest(value) for name, value in own if name not in OF_MODULES}

    def _tensors(self, part: nn.Module) -> Looks:
        own = {**part._parameters, **part._buffers}
        return {
            name: tensor if tensor is None else self._identity(tensor)
            for name, tensor in own.items()
        }

    def _identity(self, value: object) -> bytes:
        """Return the identity of a tensor, and the values of an array."""
        if isinstance(value, Tensor):
            self._kept[id(value)] = value
            return b"%d" % id(value)
        return b"".join((bytes_of(value, whole=1 << 26) or ())[:2])

    def changed(self) -> list[str]:
        """Return, for each object that has changed, its class and the changed attributes."""
        words = "{} puts another tensor in the place of its {}"
        found = [words.format(kind, names) for (kind, _), names in self._bound.changed()]
        found += [
            f"{kind} changes {names} as it runs" for (kind, _), names in self._plain.changed()
        ]
        return list(dict.fromkeys(found))

    def changed_settings(self) -> list[str]:
        """Return, for each layer of torch's that has changed, its name and the changed attributes."""
        found = self._settings.changed()
        return [f"{names} of the layer {layer or 'at the top'}" for layer, names in found]


def _whole(value: object) -> bytes:
    """Return what a tensor or an array is compared by: all of its bytes, however many."""
    data = bytes_of(value, whole=sys.maxsize)
    return b"unreadable" if data is None else data[0] + b"%d" % crc32(data[1])


class _Compared:
    """Digests of objects when they were first seen, to compare with their digests now."""

    def __init__(self, look: Callable[[], Mapping[Any, Looks]]) -> None:
        self._look, self._first = look, look()

    def changed(self) -> list[tuple[Any, str]]:
        """Return the key of each thing that has changed, with the names of what has."""
        found = []
        for key, now in self._look().items():
            first = self._first.get(key)
            if first is not None and now != first:
                names = [name for name in {**first, **now} if first.get(name) != now.get(name)]
                found.append((key, ", ".join(sorted(names))))
        return found


def _each(things: Sequence[Any], look: Callable[[Any], Looks]) -> dict[tuple[str, int], Looks]:
    return {(type(one).__qualname__, n): look(one) for n, one in enumerate(things)}


def _settings(network: nn.Module) -> dict[str, Looks]:
    return {
        name: {
            **{key: value for key, value in vars(part).items() if isinstance(value, PLAIN)},
            "hooks": [len(vars(part)[kind]) for kind in _HOOKS],
        }
        for name, part in network.named_modules()
        if not is_foreign(type(part))
    }


def unsaved(state: PlainState) -> list[str]:
    """Return why a run with such changes does not resume exactly."""
    found = [
        f"{changed}, which no checkpoint holds: make it a buffer, or write get_extra_state and"
        " set_extra_state"
        for changed in state.changed()
    ]
    if settings := state.changed_settings():
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
