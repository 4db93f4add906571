"""Adapters for networks of timm and Hugging Face: logits, and functions for `set_features`.

    trainer.set_model(Logits(transformer))      # its outputs are an object with `logits`
    trainer.set_features(hidden_features)
    trainer.set_model(timm_network)             # a plain torch network
    trainer.set_features(timm_features)

Shapes: B examples, S tokens, D features.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn

from ludus.core.errors import LudusError
from ludus.nn.model import Inputs, Model


class Logits(nn.Module):
    """Calls a network with a tensor, or with several by name, and returns the `logits` of its output."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, inputs: Inputs) -> Tensor:
        """Return (B, classes) logits."""
        logits = getattr(self.call(inputs), "logits", None)
        if not isinstance(logits, Tensor):
            raise LudusError(
                f"what a {type(self.network).__name__} gives has no logits; use a network with a head for"
                " classification"
            )
        return logits

    def call(self, inputs: Inputs, **options: bool) -> Any:
        """Return the whole output of the network."""
        if isinstance(inputs, Mapping):
            return self.network(**inputs, **options)
        return self.network(inputs, **options)


def hidden_features(model: Model, inputs: Inputs) -> Tensor:
    """Return (B, D) the mean last hidden state over the tokens, or positions, that are not padding."""
    network = model.module
    if not isinstance(network, Logits):
        raise LudusError(
            f"hidden_features asks a network in Logits(...), and this is a {type(network).__name__};"
            " put it in one"
        )
    states = getattr(network.call(inputs, output_hidden_states=True), "hidden_states", None)
    if not states:
        raise LudusError(
            f"a {type(network.network).__name__} gives no hidden_states; name a layer with features_layer"
        )
    last: Tensor = states[-1]
    if last.ndim == 4:
        return last.mean((2, 3))
    mask = inputs.get("attention_mask") if isinstance(inputs, Mapping) else None
    if mask is None or last.ndim != 3:
        return last.mean(1) if last.ndim == 3 else last
    weights_BS1 = mask.to(last).unsqueeze(2)
    return (last * weights_BS1).sum(1) / weights_BS1.sum(1).clamp(min=1)


def timm_features(model: Model, inputs: Inputs) -> Tensor:
    """Return (B, D) the pooled inputs of a timm network's head."""
    network: Any = model.module
    if not callable(getattr(network, "forward_head", None)):
        raise LudusError(
            f"a {type(network).__name__} has no forward_head, so it is no network of timm; name a layer with"
            " features_layer"
        )
    found: Tensor = network.forward_head(network.forward_features(inputs), pre_logits=True)
    return found
