"""The weights of a Llama network, arranged for sampling: fewer and larger matrices.

The scales of RMSNorm and of attention are folded into the matrices after them, and the features of queries
and keys are reordered so that a rotation is one product of complex numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ludus.text.models.llama import Attention, GatedMlp, Llama, LlamaShape, RmsNorm
from ludus.text.sampling.llama_cache import rounded


@dataclass(frozen=True)
class LayerWeights:
    """The matrices of one layer; inputs are multiplied from the left."""

    qkv: Tensor
    """Queries, keys and values."""
    output: Tensor
    gate_up: Tensor
    down: Tensor


@dataclass(frozen=True)
class LlamaWeights:
    """All weights; a copy, which later training steps do not change."""

    shape: LlamaShape
    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    output: Tensor
    rotations: Tensor
    """For each position, the complex unit of each pair of features."""

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return self.embedding.device


@torch.no_grad()
def arranged(network: Llama) -> LlamaWeights:
    """Return the weights of a network, arranged."""
    shape, body = network.shape, network.model
    layers = []
    for layer in body.layers:
        attention, mlp = layer.self_attn, layer.mlp
        before, between = layer.input_layernorm, layer.post_attention_layernorm
        assert isinstance(attention, Attention)
        assert isinstance(mlp, GatedMlp)
        assert isinstance(before, RmsNorm)
        assert isinstance(between, RmsNorm)
        queries = _paired(attention.q_proj.weight, shape.head_width) * shape.head_width**-0.5
        keys = _paired(attention.k_proj.weight, shape.head_width)
        qkv = torch.cat((queries, keys, attention.v_proj.weight)) * before.weight
        gate_up = torch.cat((mlp.gate_proj.weight, mlp.up_proj.weight)) * between.weight
        layers.append(
            LayerWeights(
                qkv=_transposed(qkv),
                output=_transposed(attention.o_proj.weight),
                gate_up=_transposed(gate_up),
                down=_transposed(mlp.down_proj.weight),
            )
        )
    return LlamaWeights(
        shape=shape,
        embedding=body.embed_tokens.weight.detach().clone(),
        layers=tuple(layers),
        output=_transposed(network.output_weight * body.norm.weight),
        rotations=_rotations(shape).to(body.embed_tokens.weight.device),
    )


def _transposed(weight: Tensor) -> Tensor:
    return weight.detach().t().contiguous().clone()


def _paired(weight: Tensor, head_width: int) -> Tensor:
    """Return rows in the order 0, half, 1, half + 1 and so on in each head: features that turn together."""
    heads = weight.view(-1, 2, head_width // 2, weight.shape[1])
    return heads.transpose(1, 2).reshape(weight.shape)


def _rotations(shape: LlamaShape) -> Tensor:
    # Prompts are padded, so that one near the context has positions after it.
    num_positions = rounded(shape.context)
    steps = torch.arange(0, shape.head_width, 2, dtype=torch.float)
    frequencies = 1.0 / (shape.rope_theta ** (steps / shape.head_width))
    angles = torch.arange(num_positions, dtype=torch.float)[:, None] * frequencies
    return torch.complex(angles.cos(), angles.sin())
