"""Detect what a script changes between two updates.

An engine replays the update as captured, so it must notice changed modes, hooks or layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter, itemgetter
from typing import Any

from torch import nn

from ludus.core.errors import LudusError
from ludus.nn.engines.gate import GLOBAL_HOOKS, HOOKS, TENSOR_HOOKS
from ludus.nn.flat import CHANGED_TRAINED

# After this many changes, each of which costs a slow update, the update is called eagerly.
_MAX_CHANGES = 20
_FIXED = (bool, int, float, str, type(None))
_OWN = set(vars(nn.Module())) - {"training"}
# The output of these depends on their weights and children alone, not on numeric attributes or mode.
_NUMBERLESS = {nn.Sequential, nn.ModuleList, nn.Linear, nn.Tanh, nn.Sigmoid, nn.SiLU, nn.Identity}
_of_weight = attrgetter("requires_grad", *TENSOR_HOOKS)

Executed = Callable[..., Any]
"""An update: a method of tensors that changes its owner's tensors in place."""


class ModuleGuard:
    """Everything besides tensors that affects an update: modes, layers, their attributes, hooks."""

    def __init__(self, modules: Sequence[nn.Module], others: Sequence[object]) -> None:
        """`others` are objects that are not modules, whose attributes are watched too."""
        self._modules, self._others = modules, others
        self._weights = [weight for module in modules for weight in module.parameters()]
        self._was_trained = [weight.requires_grad for weight in self._weights]
        self._look()

    def _look(self) -> None:
        parts = [part for module in self._modules for part in module.modules()]
        things = (*parts, *self._others)
        self._owns = [vars(thing) for thing in things]
        self._sizes = [*map(len, self._owns)]
        # Read at every update, so all numbers and strings of an object are fetched by one call.
        owns = [vars(thing) for thing in things if type(thing) not in _NUMBERLESS]
        self._read = [(read, own) for own in owns if (read := _reader(own)) is not None]
        self._values = [read(own) for read, own in self._read]
        self._things = [
            (own, name, value)
            for own in self._owns
            for name, value in own.items()
            if name not in _OWN and not isinstance(value, _FIXED)
        ]
        self._inside = [part._modules for part in parts if part._modules]
        self._layers = [layer for inside in self._inside for layer in inside.values()]
        self._of_weights = [*map(_of_weight, self._weights)]
        self._hooks: list[Mapping[int, object]] = [
            *[vars(part)[name] for part in parts for name in HOOKS],
            *[hooks for _, *own in self._of_weights for hooks in own if hooks is not None],
            *GLOBAL_HOOKS,
        ]
        self._has_hooks = any(self._hooks)

    def have_changed(self) -> bool:
        """Return whether anything has changed since the last call; raise LudusError if requires_grad has."""
        if (
            [*map(len, self._owns)] == self._sizes
            and [read(own) for read, own in self._read] == self._values
            and [own.get(name) is value for own, name, value in self._things].count(False) == 0
            and [layer for inside in self._inside for layer in inside.values()] == self._layers
            and any(self._hooks) is self._has_hooks
            and [*map(_of_weight, self._weights)] == self._of_weights
        ):
            return False
        if [weight.requires_grad for weight in self._weights] != self._was_trained:
            raise LudusError(CHANGED_TRAINED)
        self._look()
        return True


def _reader(own: Mapping[str, object]) -> Callable[[Any], object] | None:
    """Return a getter of the numbers and strings among an object's attributes."""
    names = [n for n, value in own.items() if n not in _OWN and isinstance(value, _FIXED)]
    return itemgetter(*names) if names else None


class Guarded:
    """An executed update that is captured again after a script changed what it depends on."""

    def __init__(
        self,
        method: Executed,
        make: Callable[[Executed], Executed],
        settings: Callable[[], ModuleGuard],
        why_not: Callable[[], str | None],
        give_up: Callable[[str], None],
    ) -> None:
        """`why_not` returns why nothing may be replayed as things are now; it is passed to `give_up`.

        If that does not raise, the method is called eagerly until the next change.
        """
        self.update = make(method)
        self._method = method
        self._make = make
        self._new_settings = settings
        self._settings: ModuleGuard | None = None
        self._why_not, self._give_up = why_not, give_up
        self._num_changes = 0
        self._why: str | None = None

    def __call__(self, *inputs: object) -> Any:
        """Return the result of the method."""
        if self._settings is None:
            self._settings = self._new_settings()
        elif self._settings.have_changed():
            self._change()
        return self.update(*inputs)

    def _change(self) -> None:
        self._num_changes += 1
        why = self._why_not()
        if why is None and self._num_changes > _MAX_CHANGES:
            why = "its network is changed again and again"
        self.update = self._method if why is not None else self._make(self._method)
        if why is not None and why != self._why:
            self._give_up(why)
        self._why = why
