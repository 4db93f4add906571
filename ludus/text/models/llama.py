"""A Llama network: RMSNorm, rotary positions, grouped attention and SwiGLU, with the names of transformers.

Llama            tokens -> logits
  model          embed_tokens, layers, norm
    LlamaLayer   input_layernorm, self_attn, post_attention_layernorm, mlp
  lm_head        only if the embeddings are not tied
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, scaled_dot_product_attention, silu


@dataclass(frozen=True)
class LlamaShape:
    """All numbers of the architecture."""

    vocab_size: int
    width: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    mlp_width: int
    context: int
    """The maximum number of tokens."""
    rope_theta: float = 10_000.0
    """The base of the rotary frequencies."""
    norm_epsilon: float = 1e-5
    is_tied: bool = True
    """Whether the embeddings are also the output layer."""

    def to_json(self) -> dict[str, Any]:
        """Return the values of config.json, as transformers reads them."""
        return {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "vocab_size": self.vocab_size,
            "hidden_size": self.width,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_width,
            "intermediate_size": self.mlp_width,
            "max_position_embeddings": self.context,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "rms_norm_eps": self.norm_epsilon,
            "tie_word_embeddings": self.is_tied,
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "attention_dropout": 0.0,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> LlamaShape | None:
        """Return the shape that config.json describes; None if it has a part that is not supported here."""
        rope = values.get("rope_parameters") or values.get("rope_scaling") or {}
        is_plain = (
            values.get("model_type") == "llama"
            and values.get("hidden_act", "silu") == "silu"
            and not values.get("attention_bias")
            and not values.get("mlp_bias")
            and rope.get("rope_type", "default") == "default"
        )
        if not is_plain:
            return None
        width, heads = int(values["hidden_size"]), int(values["num_attention_heads"])
        return cls(
            vocab_size=int(values["vocab_size"]),
            width=width,
            num_layers=int(values["num_hidden_layers"]),
            num_heads=heads,
            num_kv_heads=int(values.get("num_key_value_heads") or heads),
            head_width=int(values.get("head_dim") or width // heads),
            mlp_width=int(values["intermediate_size"]),
            context=int(values["max_position_embeddings"]),
            rope_theta=float(rope.get("rope_theta", values.get("rope_theta", 10_000.0))),
            norm_epsilon=float(values.get("rms_norm_eps", 1e-6)),
            is_tied=bool(values.get("tie_word_embeddings", False)),
        )


class RmsNorm(nn.Module):
    """Divides by the root mean square, and scales each feature."""

    def __init__(self, width: int, epsilon: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.epsilon = epsilon

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the normalised inputs."""
        exact = inputs.to(torch.float32)
        scale = torch.rsqrt(exact.pow(2).mean(-1, keepdim=True) + self.epsilon)
        return self.weight * (exact * scale).to(inputs.dtype)


class Attention(nn.Module):
    """Causal attention, where several query heads may share a head of keys and values."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape = shape
        queries, keys = shape.num_heads * shape.head_width, shape.num_kv_heads * shape.head_width
        self.q_proj = nn.Linear(shape.width, queries, bias=False)
        self.k_proj = nn.Linear(shape.width, keys, bias=False)
        self.v_proj = nn.Linear(shape.width, keys, bias=False)
        self.o_proj = nn.Linear(queries, shape.width, bias=False)

    def forward(self, inputs_BTW: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
        """Return the attention of each position to those up to it."""
        size = (*inputs_BTW.shape[:2], -1, self.shape.head_width)
        queries = rotated(self.q_proj(inputs_BTW).view(size).transpose(1, 2), cos_TD, sin_TD)
        keys = rotated(self.k_proj(inputs_BTW).view(size).transpose(1, 2), cos_TD, sin_TD)
        values = self.v_proj(inputs_BTW).view(size).transpose(1, 2)
        is_grouped = self.shape.num_kv_heads != self.shape.num_heads
        found = scaled_dot_product_attention(
            queries, keys, values, is_causal=True, enable_gqa=is_grouped
        )
        result: Tensor = self.o_proj(found.transpose(1, 2).flatten(2))
        return result


class GatedMlp(nn.Module):
    """SwiGLU: one projection gates the other."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.width, shape.mlp_width, bias=False)
        self.up_proj = nn.Linear(shape.width, shape.mlp_width, bias=False)
        self.down_proj = nn.Linear(shape.mlp_width, shape.width, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the output of the block."""
        result: Tensor = self.down_proj(silu(self.gate_proj(inputs)) * self.up_proj(inputs))
        return result


class LlamaLayer(nn.Module):
    """Attention and a gated MLP, each on normalised inputs and added to them."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.self_attn = Attention(shape)
        self.mlp = GatedMlp(shape)
        self.input_layernorm = RmsNorm(shape.width, shape.norm_epsilon)
        self.post_attention_layernorm = RmsNorm(shape.width, shape.norm_epsilon)

    def forward(self, inputs_BTW: Tensor, cos_TD: Tensor, sin_TD: Tensor) -> Tensor:
        """Return the outputs of the layer."""
        inputs_BTW = inputs_BTW + self.self_attn(self.input_layernorm(inputs_BTW), cos_TD, sin_TD)
        result: Tensor = inputs_BTW + self.mlp(self.post_attention_layernorm(inputs_BTW))
        return result


class LlamaBody(nn.Module):
    """Everything below the output layer."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(shape.vocab_size, shape.width)
        self.layers = nn.ModuleList([LlamaLayer(shape) for _ in range(shape.num_layers)])
        self.norm = RmsNorm(shape.width, shape.norm_epsilon)
        cos, sin = rotary_tables(shape)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)

    def forward(self, tokens_BT: Tensor) -> Tensor:
        """Return the last hidden states, normalised."""
        num_tokens = tokens_BT.shape[1]
        cos, sin = self.get_buffer("cos")[:num_tokens], self.get_buffer("sin")[:num_tokens]
        hidden_BTW = self.embed_tokens(tokens_BT)
        for layer in self.layers:
            hidden_BTW = layer(hidden_BTW, cos, sin)
        result: Tensor = self.norm(hidden_BTW)
        return result


class Llama(nn.Module):
    """A causal language model: the logits of the next token at each position."""

    def __init__(self, shape: LlamaShape) -> None:
        super().__init__()
        self.shape = shape
        self.model = LlamaBody(shape)
        if not shape.is_tied:
            self.lm_head = nn.Linear(shape.width, shape.vocab_size, bias=False)

    @property
    def output_weight(self) -> Tensor:
        """The matrix of the output layer."""
        return self.model.embed_tokens.weight if self.shape.is_tied else self.lm_head.weight

    def forward(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        """Return the logits of the token after each; padding on the right changes none of them.

        Positions past a row's length are padding: what is returned there has no meaning.
        """
        return linear(self.model(tokens_BT), self.output_weight)


def initialise(network: Llama, generator: torch.Generator, *, embedding_std: float) -> None:
    """Draw all weights: embeddings normal, matrices uniform within the root of their number of inputs."""
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name == "model.embed_tokens.weight":
                weight.normal_(0.0, embedding_std, generator=generator)
            elif weight.ndim == 2:
                bound = 1 / math.sqrt(weight.shape[1])
                weight.uniform_(-bound, bound, generator=generator)


def rotary_tables(shape: LlamaShape) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines of every position, as (context, head_width)."""
    steps = torch.arange(0, shape.head_width, 2, dtype=torch.float)
    frequencies = 1.0 / (shape.rope_theta ** (steps / shape.head_width))
    positions = torch.arange(shape.context, dtype=torch.float)
    angles = positions[:, None] * frequencies
    whole = torch.cat((angles, angles), dim=-1)
    return whole.cos(), whole.sin()


def rotated(inputs: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Return queries or keys turned by the angles of their positions."""
    first, second = inputs.chunk(2, dim=-1)
    return inputs * cos + torch.cat((-second, first), dim=-1) * sin
