"""Low-rank adapters (LoRA): each adapted matrix is W + (alpha / rank) B A, and only A and B are trained."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from ludus.core.errors import ConfigError
from ludus.seeds import generator
from ludus.text.models.llama import Llama

ALPHA = 32.0
"""The scale of an adapter is this divided by its rank, as in Tinker."""
_ATTENTION = {"q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj", "c_attn", "query_key_value"}
_MLP = {"gate_proj", "up_proj", "down_proj", "gate_up_proj", "fc1", "fc2", "c_fc"}
_OUTPUT = {"lm_head", "embed_out"}


@dataclass(frozen=True)
class LoraShape:
    """What is adapted, and by how much."""

    rank: int
    seed: int
    """Seed of the first values of A; B begins at 0, so that the model begins as it was."""
    attention: bool
    mlp: bool
    output: bool
    """The output layer. In a model of transformers that ties it to the embeddings it stays as it is."""

    def targets(self) -> set[str]:
        """Return the last names of the layers to adapt."""
        chosen = ((_ATTENTION, self.attention), (_MLP, self.mlp), (_OUTPUT, self.output))
        return {name for names, is_chosen in chosen if is_chosen for name in names}


class AdaptedLinear(nn.Module):
    """A linear layer with frozen weights, and the adapter that is trained instead."""

    def __init__(self, base: nn.Linear, rank: int, source: torch.Generator) -> None:
        super().__init__()
        self.base = base
        width = base.in_features
        bound = 1 / math.sqrt(width)
        first = torch.empty(rank, width).uniform_(-bound, bound, generator=source)
        self.down = nn.Parameter(first.to(base.weight))
        self.up = nn.Parameter(base.weight.new_zeros(base.out_features, rank))
        self.scale = ALPHA / rank

    @property
    def weight(self) -> Tensor:
        """The matrix with the adapter added."""
        return self.base.weight + self.scale * (self.up @ self.down)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the output of the adapted layer."""
        found: Tensor = self.base(inputs)
        return found + linear(linear(inputs, self.down), self.up) * self.scale


def adapt(module: nn.Module, shape: LoraShape) -> None:
    """Freeze a network and put adapters into its layers; raise ConfigError if it has none to adapt."""
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    if shape.output and isinstance(module, Llama):
        _untie(module)
    targets = shape.targets()
    found = [
        (name, layer)
        for name, layer in module.named_modules()
        if isinstance(layer, nn.Linear) and name.rpartition(".")[2] in targets
    ]
    if not found:
        raise ConfigError(
            "the model has no linear layer that LoRA could adapt with these options; train all weights (no"
            " lora_config), or switch on train_attn and train_mlp"
        )
    for count, (name, layer) in enumerate(found):
        source = generator(shape.seed, "LoRA", count)
        _put(module, name, AdaptedLinear(layer, shape.rank, source))


def _untie(network: Llama) -> None:
    """Give the output layer a matrix of its own, equal to the embeddings."""
    if network.shape.is_tied:
        network.lm_head = _linear(network.output_weight.detach().clone(), None)
        network.shape = replace(network.shape, is_tied=False)


@contextlib.contextmanager
def merged(module: nn.Module) -> Iterator[None]:
    """Replace each adapted layer by a plain one with the merged matrix, within the block."""
    adapted = [
        (name, layer) for name, layer in module.named_modules() if isinstance(layer, AdaptedLinear)
    ]
    for name, layer in adapted:
        _put(module, name, _plain(layer))
    try:
        yield
    finally:
        for name, layer in adapted:
            _put(module, name, layer)


def _plain(layer: AdaptedLinear) -> nn.Linear:
    bias = layer.base.bias
    return _linear(layer.weight.detach(), None if bias is None else bias.detach())


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    """Return a frozen linear layer of these very tensors."""
    plain = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    plain.weight = nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        plain.bias = nn.Parameter(bias, requires_grad=False)
    return plain


def _put(module: nn.Module, name: str, layer: nn.Module) -> None:
    above, _, last = name.rpartition(".")
    setattr(module.get_submodule(above), last, layer)
