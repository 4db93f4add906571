"""The scenario `graph_isomorphism`: whether two graphs are isomorphic.

A message names a node of either graph. The difficulty of a pair is its Weisfeiler-Leman score: a network of
fewer layers cannot distinguish the graphs, but an agent that is shown where to look may.

Shapes: N pairs, G the two graphs, M nodes of a graph.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from ludus.arena.playing.dataset import ArenaDataset
from ludus.arena.scenario import Datasets, Scenario
from ludus.arena.scenarios.graph_isomorphism.pairs import MORE, PairRequest, find_pairs
from ludus.config.base import NonNegativeFloat, Positive, Share, StrictConfig
from ludus.config.registry import register
from ludus.seeds import derive
from ludus.store.cache import cached_tensors

Size = Annotated[int, Field(ge=2, le=255)]
Probability = Annotated[float, Field(gt=0, lt=1)]
_FORMAT = 2
"""Raised whenever the same parameters give other pairs."""
_QUARTERS = {"test": (0,), "validation": (1,), "train": (2, 3)}
"""The quarters of all isomorphism classes of pairs that each dataset is drawn from."""


class WlScores(StrictConfig):
    """The difficulty of the pairs: proportions that add up to 1."""

    score_1: NonNegativeFloat
    """The share of pairs that one round of colour refinement distinguishes: the degrees differ."""
    score_2: NonNegativeFloat
    """The share that two rounds distinguish, and one does not."""
    more: NonNegativeFloat
    """The share that needs more than two rounds, or that no number of rounds distinguishes."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        total = self.score_1 + self.score_2 + self.more
        if abs(total - 1.0) > 1e-6:
            yield f"'score_1', 'score_2' and 'more' add up to {total:g}; make it 1"


class GraphIsomorphismParameters(StrictConfig):
    """The distribution of pairs of graphs."""

    kind: Literal["graph_isomorphism"]
    """Pairs of graphs, labelled 1 where they are isomorphic."""
    sizes: Annotated[list[Size], Field(min_length=1)]
    """The numbers of nodes; each pair has one of them, chosen evenly."""
    edge_probabilities: Annotated[list[Probability], Field(min_length=1)]
    """The edge probabilities; each pair has one of them, chosen evenly."""
    non_isomorphic_share: Share
    """The share of pairs that are not isomorphic, whose label is 0."""
    wl_scores: WlScores
    """The Weisfeiler-Leman scores of the pairs that are not isomorphic; isomorphic pairs hold a graph of
    such a pair twice, so that no graph alone gives the label away.
    """
    train_size: Positive
    """The number of training pairs."""
    validation_size: Positive
    """The number of validation pairs, which select the best model."""
    test_size: Positive
    """The number of test pairs."""


@register("scenario", "graph_isomorphism")
class GraphIsomorphism(Scenario):
    """Provides `adjacency` (N, G, M, M) as 0 and 1, and `node_mask` (N, G, M); the label 1 is isomorphic."""

    Config = GraphIsomorphismParameters
    params: GraphIsomorphismParameters

    @property
    def max_nodes(self) -> int:
        """The number of nodes of the largest graph."""
        return max(self.params.sizes)

    @property
    def num_symbols(self) -> int:
        """A node of either graph."""
        return 2 * self.max_nodes

    def symbol_name(self, symbol: int) -> str:
        """Return the graph, A or B, and the node in it."""
        graph, node = divmod(symbol, self.max_nodes)
        return f"{'AB'[graph]}{node}"

    def describe(self, datum: Mapping[str, Tensor]) -> list[str]:
        """Return the edges of each graph."""
        lines = []
        for name, adjacency_MM, mask_M in zip(
            "AB", datum["adjacency"], datum["node_mask"], strict=True
        ):
            edges = torch.nonzero(torch.triu(adjacency_MM)).tolist()
            listed = " ".join(f"{one}-{other}" for one, other in edges)
            lines.append(f"graph {name}: {int(mask_M.sum())} nodes, edges {listed or 'none'}")
        return lines

    def make_datasets(self, seed: int) -> Datasets:
        """Return the pairs, drawn or read from the cache; none is isomorphic to one of another dataset."""
        about = {"params": self.params.model_dump(), "seed": seed, "format": _FORMAT}
        tensors = cached_tensors("graph_isomorphism", about, lambda: self._made(seed))

        def dataset(split: str) -> ArenaDataset:
            data = {
                "adjacency": tensors[f"{split}.adjacency"].to(torch.float32),
                "node_mask": tensors[f"{split}.node_mask"],
            }
            return ArenaDataset(data, tensors[f"{split}.y"])

        return Datasets(dataset("train"), dataset("validation"), dataset("test"))

    def _made(self, seed: int) -> dict[str, Tensor]:
        tensors: dict[str, Tensor] = {}
        for split, quarters in _QUARTERS.items():
            rng = np.random.default_rng(derive(seed, f"arena/graph_isomorphism/{split}"))
            wanted = self._wanted(getattr(self.params, f"{split}_size"), rng)

            def is_ours(name: bytes, quarters: tuple[int, ...] = quarters) -> bool:
                return derive(seed, f"arena/graph_isomorphism/class/{name.hex()}") % 4 in quarters

            pairs = find_pairs(wanted, self.max_nodes, rng, is_ours)
            adjacency_NGMM = np.stack([pairs.one, pairs.other], 1)
            tensors[f"{split}.adjacency"] = torch.from_numpy(adjacency_NGMM)
            tensors[f"{split}.node_mask"] = torch.from_numpy(np.stack([pairs.mask] * 2, 1))
            tensors[f"{split}.y"] = torch.from_numpy(wanted.is_isomorphic.astype(np.int64))
        return tensors

    def _wanted(self, count: int, rng: np.random.Generator) -> PairRequest:
        """Return the requirements of each pair of a dataset: shares as exact as integers allow."""
        params = self.params
        num_different = round(count * params.non_isomorphic_share)
        order_N = rng.permutation(count)
        is_isomorphic_N = order_N >= num_different
        score_N = np.concatenate(
            [self._scores(num_different), self._scores(count - num_different)]
        )[order_N]
        size_N = rng.choice(np.array(params.sizes, np.int64), count)
        probability_N = rng.choice(np.array(params.edge_probabilities), count)
        return PairRequest(size_N, probability_N, score_N, is_isomorphic_N)

    def _scores(self, count: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """Return scores in the required proportions."""
        shares = self.params.wl_scores
        first = round(count * shares.score_1)
        second = round(count * (shares.score_1 + shares.score_2))
        found = np.full(count, MORE, np.int64)
        found[:second] = 2
        found[:first] = 1
        return found
