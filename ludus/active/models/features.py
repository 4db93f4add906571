"""Features of examples: what goes into the last linear layer, what leaves a named one, or a function's.

Shapes: B examples, D features.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.nn.model import Inputs, Model

ActiveModel = Model
"""The model of an ActiveTrainer is any Model: its features are found by layer, or by a function."""

Of = Callable[[Model, Inputs], Tensor]
"""Takes the model and a batch of inputs; returns (B, D) features."""


class Features:
    """Calls a model and returns its outputs with the features of the same pass."""

    def __init__(self, layer: str | None, function: Of | None = None) -> None:
        """`layer` names a module of the network; None is the input of its last linear layer."""
        self._layer, self._function = layer, function

    def check(self, model: Model) -> None:
        """Raise ConfigError, before any work is done, if this network has no such layer."""
        if self._function is None:
            self._module(model.module)

    def __call__(self, model: Model, inputs: Inputs) -> tuple[Tensor, Tensor]:
        """Return the outputs, and (B, ...) features."""
        if self._function is not None:
            outputs, found = model(inputs), self._function(model, inputs)
            if not isinstance(found, Tensor) or len(found) != len(outputs):
                given = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
                raise LudusError(
                    f"the function of features gave {given} for {len(outputs)} examples; return a tensor"
                    " with a row for each"
                )
            return outputs, found
        module = self._module(model.module)
        kept: list[Tensor] = []
        if self._layer is None:
            handle = module.register_forward_pre_hook(lambda _, inputs: kept.append(inputs[0]))
        else:
            handle = module.register_forward_hook(lambda _, inputs, found: kept.append(found))
        try:
            outputs = model(inputs)
        finally:
            handle.remove()
        if not kept:
            raise LudusError(
                f"the layer {self._layer or 'that is linear and last'} was not called, so there are no"
                " features; name another with features_layer"
            )
        if not isinstance(kept[-1], Tensor):
            raise LudusError(
                f"the layer {self._layer} returns a {type(kept[-1]).__name__}, and features are a tensor;"
                " name another with features_layer, or give the trainer a function of features"
            )
        return outputs, kept[-1]

    def _module(self, network: nn.Module) -> nn.Module:
        named: dict[str, nn.Module] = dict(network.named_modules())
        if self._layer is not None:
            if self._layer not in named:
                raise ConfigError(
                    f"'features_layer' is {self._layer}, and the network has no such layer."
                    f"{nearest(self._layer, [name for name in named if name])}"
                )
            return named[self._layer]
        found = last_linear(network)
        if found is None:
            raise ConfigError(
                "the network has no linear layer whose inputs could be its features; name a layer with"
                " features_layer, or give the trainer a function of features"
            )
        return found[1]


def last_linear(network: nn.Module) -> tuple[str, nn.Linear] | None:
    """Return the name and the last of the linear layers, in the order in which the network lists them."""
    found = [(n, one) for n, one in network.named_modules() if isinstance(one, nn.Linear)]
    return found[-1] if found else None
