"""Heads: policy, value and solo outputs from the features of a body.

Shapes: N rows, C channels, V symbols, D features.
"""

from __future__ import annotations

import itertools
import math

import torch
from torch import Tensor, nn

from ludus.arena.agents.agent import AgentOutput
from ludus.arena.agents.body import Body, BodyFeatures
from ludus.config.base import Positive, StrictConfig

ABSENT = -1e9
"""The logit of an absent symbol."""


class HeadParameters(StrictConfig):
    """A small network on top of the body."""

    widths: list[Positive]
    """The width of each hidden layer; ReLU follows each."""


def layers(widths: list[int]) -> nn.Sequential:
    """Return linear layers of these widths with ReLU between them."""
    made: list[nn.Module] = []
    for index, (wide, narrow) in enumerate(itertools.pairwise(widths)):
        made += [nn.ReLU()] if index else []
        made += [nn.Linear(wide, narrow)]
    return nn.Sequential(*made)


class PolicyHead(nn.Module):
    """Decides by the features of the whole, and chooses a symbol for each channel by those of each symbol.

    Where symbols have no features, it chooses among them by the whole.
    """

    def __init__(
        self, params: HeadParameters, body: Body, num_channels: int, *, num_symbols: int
    ) -> None:
        super().__init__()
        self._shape = num_channels, 1 if body.has_symbols else num_symbols
        self.decide = layers([body.width, *params.widths, 3])
        widths = [*params.widths, math.prod(self._shape)]
        self.choose = layers([body.symbol_width or body.width, *widths])
        self.by_context: nn.Linear | None = None
        if body.context_width:
            self.by_context = nn.Linear(body.context_width, widths[0], bias=False)
        for last in (self.decide[-1], self.choose[-1]):
            assert isinstance(last, nn.Linear)
            # A policy that begins near uniform explores everything.
            nn.init.orthogonal_(last.weight, 0.01)
            nn.init.zeros_(last.bias)

    def forward(self, found: BodyFeatures) -> AgentOutput:
        """Return the logits of decision and messages."""
        if found.symbols is None:
            message_NCV = self.choose(found.whole).unflatten(-1, self._shape)
        else:
            message_NCV = self._chosen(found.symbols, found.context).transpose(-1, -2)
        if found.present is not None:
            message_NCV = message_NCV.masked_fill(~found.present.unsqueeze(1), ABSENT)
        return AgentOutput(self.decide(found.whole), message_NCV)

    def _chosen(self, symbols_NVD: Tensor, context_NPE: Tensor | None) -> Tensor:
        """Return (N, V, C) logits; the shared context passes the first layer once."""
        first, *others = self.choose
        hidden = first(symbols_NVD)
        if self.by_context is not None:
            assert context_NPE is not None
            shared = self.by_context(context_NPE).unsqueeze(2)
            N, P, _, H = shared.shape
            hidden = (hidden.view(N, P, -1, H) + shared).view(N, -1, H)
        for layer in others:
            hidden = layer(hidden)
        return torch.as_tensor(hidden)


class ValueHead(nn.Module):
    """Computes the value."""

    def __init__(self, params: HeadParameters, body: Body, *, in_env: bool) -> None:
        super().__init__()
        gain = (1.0 if in_env else 0.1) if body.value_gain is None else body.value_gain
        self.layers = layers([body.width, *params.widths, 1])
        last = self.layers[-1]
        assert isinstance(last, nn.Linear)
        nn.init.orthogonal_(last.weight, gain)
        nn.init.zeros_(last.bias)

    def forward(self, found: BodyFeatures) -> Tensor:
        """Return (N,) values."""
        return torch.squeeze(self.layers(found.whole), -1)


class SoloHead(nn.Module):
    """Classifies the datum."""

    def __init__(self, params: HeadParameters, width: int) -> None:
        super().__init__()
        self.layers = layers([width, *params.widths, 2])

    def forward(self, found: BodyFeatures) -> Tensor:
        """Return (N, 2) logits of the label."""
        return torch.as_tensor(self.layers(found.whole))
