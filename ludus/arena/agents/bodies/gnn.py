"""The body `gnn`: a graph isomorphism network on pairs of small graphs, as dense batches.

The input of a node are the messages that named it: their number, and a bit for each round and channel. Each
layer sums over neighbours and the node itself. The features of a graph are the sum over its nodes. The
whole is the absolute difference of the two graphs and their sum, so that it is invariant to the order of
the pair; the context of the nodes of a graph is its difference from the other.

Shapes: N rows, G the two graphs, M nodes of a graph, R rounds, C channels, D features, V = G x M symbols.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from ludus.arena.agents.body import Body, BodyFeatures, Rows
from ludus.arena.scenario import ObservationSizes
from ludus.config.base import Count, Positive, StrictConfig
from ludus.config.registry import register


class GnnParameters(StrictConfig):
    """The size of the network."""

    kind: Literal["gnn"]
    """A graph isomorphism network on pairs of graphs."""
    num_layers: Count
    """The number of message-passing layers; two graphs that need more rounds of colour refinement to be
    distinguished look the same to it. 0 sees the messages and the number of nodes alone.
    """
    width: Positive
    """The number of features of a node."""
    compares: bool
    """Also give each node its similarity to each named node of the other graph, by a second pass without
    the messages: an agent that must answer with the matching node needs it, at twice the cost.
    """


_GAIN = 4.0
"""The gain of the initial weights before the sine, so that one neighbour more is a big step."""

_SHARPNESS = 10.0
"""The decay rate of the similarity of two nodes with the distance of their features."""


class _Layer(nn.Module):
    """h' = MLP((1 + eps) h + the sum over neighbours)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        # Not 0, or a node would be indistinguishable from its neighbours.
        self.eps = nn.Parameter(torch.tensor(0.3))
        self.inner = nn.Linear(width, width)
        self.outer = nn.Linear(width, width)
        with torch.no_grad():
            self.inner.weight *= _GAIN

    def forward(self, h: Tensor, adjacency: Tensor) -> Tensor:
        gathered = (1.0 + self.eps) * h + adjacency @ h
        # Nodes differ by small integers, between which ReLU is at first a linear map; a sum over nodes of
        # linear maps counts walks, and in these hard pairs agree. A sine distinguishes the nodes at once.
        return torch.relu(self.outer(torch.sin(self.inner(gathered))))


@register("body", "gnn")
class Gnn(Body):
    """A graph isomorphism network on `adjacency` (N, G, M, M) and `node_mask` (N, G, M)."""

    Config = GnnParameters
    needs = ("adjacency", "node_mask")

    def __init__(self, params: GnnParameters, seen: ObservationSizes) -> None:
        super().__init__()
        width = params.width
        self.width = 3 * width
        places = seen.max_message_rounds * seen.num_channels
        self.symbol_width, self.context_width = width, 2 * width
        self.entry = nn.Linear(2, width)
        self.when = nn.Linear(places, width, bias=False)
        # At first it counts that a node was named, not when: a question and its answer then look the same,
        # and two graphs with matching marks do not differ.
        nn.init.zeros_(self.when.weight)
        self.layers = nn.ModuleList(_Layer(width) for _ in range(params.num_layers))
        self.num_symbols = seen.num_symbols
        self.clock = nn.Embedding(seen.max_message_rounds + 1, width)
        self.likeness = nn.Linear(places, width) if params.compares else None

    def forward(self, rows: Rows) -> BodyFeatures:
        """Return features of pairs and of their nodes."""
        adjacency, mask, history = rows["adjacency"], rows["node_mask"], rows["message_history"]
        N, G, M, _ = adjacency.shape
        marks = self._marks(history).reshape(N, G, M, -1).to(adjacency.dtype)
        there = mask.unsqueeze(-1).to(adjacency.dtype)
        h = self._looked(marks, there, adjacency)
        graphs = h.sum(-2)
        total = torch.log1p(graphs.sum(1))
        differs = graphs - graphs.flip(1)
        whole = torch.cat([differs[:, 0].abs(), total, self.clock(rows["round"])], -1)
        about = torch.cat([differs, total.unsqueeze(1).expand_as(differs)], -1)
        if self.likeness is not None:
            silent = self._looked(torch.zeros_like(marks), there, adjacency)
            h = h + self.likeness(self._likenesses(silent, history)).reshape(h.shape)
        return BodyFeatures(whole, h.reshape(N, G * M, -1), mask.reshape(N, G * M), about)

    def _looked(self, marks: Tensor, there: Tensor, adjacency: Tensor) -> Tensor:
        """Return (N, G, M, D) features of each node; zeros for absent nodes."""
        named = marks.sum(-1, keepdim=True)
        h = torch.relu(self.entry(torch.cat([there, named], -1)) + self.when(marks)) * there
        # The sum over all layers, as in jumping knowledge: the last layer alone forgets the early ones.
        for layer in self.layers:
            h = h + layer(h, adjacency) * there
        return h

    def _likenesses(self, h: Tensor, history: Tensor) -> Tensor:
        """Return (N, V, R x C) the similarity of each node to the named node of the other graph, from 0 to
        1."""
        N, G, M, D = h.shape
        flat, places = h.reshape(N, G * M, D), history.reshape(N, -1)
        at = places.clamp_min(0)
        named = flat.gather(1, at.unsqueeze(-1).expand(-1, -1, D))
        distance = (flat.unsqueeze(2) - named.unsqueeze(1)).abs().sum(-1)
        side = torch.arange(self.num_symbols, device=h.device) // M
        counts = (side[:, None] != (at // M).unsqueeze(1)) & (places >= 0).unsqueeze(1)
        return torch.exp(-_SHARPNESS * distance) * counts

    def _marks(self, history: Tensor) -> Tensor:
        """Return (N, V, R x C) which message named each symbol."""
        N = len(history)
        flat = history.reshape(N, -1)
        symbols = torch.arange(self.num_symbols, device=history.device)
        return (flat.unsqueeze(1) == symbols[None, :, None]).to(torch.float32)
