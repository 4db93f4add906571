"""Features of examples: inputs of the last linear layer, outputs of a named one, or a function's.

Shapes: B examples, D features.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.nn.model import Inputs, Model

ActiveModel = Model
"""The model of an ActiveTrainer: any Model; its features come from a layer or a function."""

Of = Callable[[Model, Inputs], Tensor]
"""Takes the model and a batch of inputs; returns (B, D) features."""


class Features:
    """Calls a model and returns its outputs with the features of the same forward pass."""

    def __init__(self, layer: str | None, function: Of | None = None) -> None:
        """`layer` names a module of the network; None is the input of its last linear layer."""
        self._layer, self._function = layer, function
        self._last: WeakKeyDictionary[nn.Module, nn.Module] = WeakKeyDictionary()

    def check(self, model: Model) -> None:
        """Raise ConfigError, before any work is done, if this network has no such layer."""
        if self._function is None:
            self._module(model.module)

    def __call__(self, model: Model, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Return the outputs, and (B, ...) features."""
        if self._function is not None:
            outputs = model(inputs)
            return outputs, self._given(model, inputs, count=len(outputs))
        if self._layer is None:
            return self._before_the_last(model, inputs)
        kept: list[object] = []

        def keep(layer: nn.Module, given: object, named: object, found: object) -> None:
            # A later in-place layer would overwrite it.
            kept.append(found.clone() if isinstance(found, Tensor) else found)

        with _hooked([self._module(model.module)], keep):
            outputs = model(inputs)
        if not kept:
            raise LudusError(
                f"the layer {self._layer} was not called, so there are no features; name another with"
                " features_layer"
            )
        if not isinstance(kept[-1], Tensor):
            raise LudusError(
                f"the layer {self._layer} returns a {type(kept[-1]).__name__}, and features are a tensor;"
                " name another with features_layer, or give the trainer a function of features"
            )
        return outputs, kept[-1]

    def alone(self, model: Model, inputs: Inputs, *, count: int) -> Tensor:
        """Return the features of `count` examples; a function calls the network itself."""
        if self._function is not None:
            return self._given(model, inputs, count=count)
        return self(model, inputs)[1]

    def _given(self, model: Model, inputs: Inputs, *, count: int) -> Tensor:
        """Return the function's features of `count` examples, checked: it may be third-party code."""
        assert self._function is not None
        try:
            found = self._function(model, inputs)
        except (LudusError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            raise LudusError(
                f"the function of features failed: {type(error).__name__}: {error}; mend it and resume"
            ) from error
        if not isinstance(found, Tensor) or found.ndim < 2 or len(found) != count:
            given = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise LudusError(
                f"the function of features gave {given} for {count} examples; return a tensor with a row"
                " for each"
            )
        return found

    def _before_the_last(self, model: Model, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Return the outputs, and the inputs of the linear layer that made them, else of the last called.

        The order in which a network registers its layers is not the order in which it calls them, so all
        are hooked until it is known.
        """
        network = model.module
        layers = [one for one in network.modules() if isinstance(one, nn.Linear)]
        known = [one for one in layers if one is self._last.get(network)] or layers
        called: list[tuple[nn.Module, Tensor, object]] = []

        def keep(
            layer: nn.Module, given: Sequence[Tensor], named: Mapping[str, Tensor], found: object
        ) -> None:
            # A copy: the network may write into it in place, or reuse the memory for the next batch.
            called.append((layer, (given[0] if given else named["input"]).clone(), found))

        with _hooked(known, keep):
            outputs = model(inputs)
        if not called:
            raise LudusError(
                "no linear layer of the network was called, so there are no features; name a layer with"
                " features_layer, or give the trainer a function of features"
            )
        last, features_BD, _ = ([c for c in called if c[2] is outputs] or called)[-1]
        self._last[network] = last
        return outputs, features_BD

    def _module(self, network: nn.Module) -> nn.Module:
        named: dict[str, nn.Module] = dict(network.named_modules())
        if self._layer is not None:
            if self._layer not in named:
                raise ConfigError(
                    f"'features_layer' is {self._layer}, and the network has no such layer."
                    f"{nearest(self._layer, [name for name in named if name])}"
                )
            return named[self._layer]
        if not any(isinstance(one, nn.Linear) for one in named.values()):
            raise ConfigError(
                "the network has no linear layer whose inputs could be its features; name a layer with"
                " features_layer, or give the trainer a function of features"
            )
        return network


def last_called(network: nn.Module, call: Callable[[], object]) -> nn.Linear | None:
    """Return the last linear layer of a network that `call` reaches; None if it reaches none."""
    called: list[nn.Linear] = []
    layers = [one for one in network.modules() if isinstance(one, nn.Linear)]
    with _hooked(layers, lambda layer, *rest: called.append(layer)):
        call()
    return called[-1] if called else None


@contextlib.contextmanager
def _hooked(layers: Iterable[nn.Module], hook: Callable[..., None]) -> Iterator[None]:
    """Call the hook after each forward pass of these layers inside the block."""
    handles = [one.register_forward_hook(hook, with_kwargs=True) for one in layers]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
