"""Draw pairs of Erdos-Renyi graphs with given Weisfeiler-Leman scores.

A pair of score 1 is two independent graphs. For the higher scores, which such pairs hardly ever have, the
second graph is the first after many switches: two edges a-b and c-d become a-d and c-b. Any switch keeps
the degrees, so the score is at least 2; one with equal degrees of a and c, and of b and d, keeps the
colours of two rounds, so it is at least 3. Switches are proposed symmetrically, hence the second graph is
an Erdos-Renyi graph as much as the first. Pairs with another score are rejected and drawn again.

Datasets are split by isomorphism class: two pairs whose graphs are isomorphic, in either order, have the
same class, and a hash of the class chooses its dataset. So no test pair is a training pair with its nodes
renamed, whatever is drawn and however often.

Shapes: N pairs, M nodes of a graph, E edges.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ludus.arena.scenarios.graph_isomorphism.colours import (
    Adjacency,
    Mask,
    are_different,
    scores,
    signatures,
)
from ludus.core.errors import ConfigError

_BATCH = 4096
_PROPOSALS = 64
_MAX_TRIES = 200_000
"""The number of consecutive tries without a pair of some sort after which the search stops."""
MORE = 3
"""Every score above 2, and pairs that colour refinement never distinguishes."""


@dataclass(frozen=True)
class PairRequest:
    """The requirements of each of N pairs."""

    size: NDArray[np.int64]
    probability: NDArray[np.float64]
    score: NDArray[np.int64]
    """1, 2 or MORE: for an isomorphic pair, that of the pair its graph was taken from."""
    is_isomorphic: NDArray[np.bool_]

    def at(self, rows: NDArray[np.int64]) -> PairRequest:
        """Return the requirements of these pairs."""
        return PairRequest(
            self.size[rows], self.probability[rows], self.score[rows], self.is_isomorphic[rows]
        )

    def sorts(self) -> NDArray[np.int64]:
        """Return (N,) numbers that are equal for pairs with the same requirements."""
        each = np.stack([self.size, self.probability, self.score, self.is_isomorphic], 1)
        return np.unique(each, axis=0, return_inverse=True)[1].reshape(-1)

    def __len__(self) -> int:
        return len(self.size)


class Pairs(NamedTuple):
    """Graphs with nodes in no particular order."""

    one: Adjacency
    other: Adjacency
    mask: Mask

    def at(self, rows: NDArray[np.int64]) -> Pairs:
        """Return these pairs alone."""
        return Pairs(self.one[rows], self.other[rows], self.mask[rows])

    def classes(self) -> list[bytes]:
        """Return a digest of the isomorphism class of each pair, whichever graph comes first.

        Pairs of isomorphic graphs always have the same digest. The converse is not promised for every
        large graph (see `signatures`); where it fails, two classes count as one, which splits no class.
        """
        sides = [signatures(side, self.mask).astype("<u8") for side in (self.one, self.other)]
        sizes = self.mask.sum(1).tolist()
        return [
            hashlib.sha256(
                b"%d/" % size + b"".join(sorted((one.tobytes(), other.tobytes())))
            ).digest()
            for size, one, other in zip(sizes, *sides, strict=True)
        ]


def find_pairs(
    wanted: PairRequest, max_nodes: int, rng: np.random.Generator, is_ours: Callable[[bytes], bool]
) -> Pairs:
    """Return a pair for each request, of classes that are ours; raise ConfigError if there is none."""
    count = len(wanted)
    square = (count, max_nodes, max_nodes)
    found = Pairs(
        np.zeros(square, np.bool_), np.zeros(square, np.bool_), _mask(wanted.size, max_nodes)
    )
    sort_N = wanted.sorts()
    misses_S = np.zeros(int(sort_N.max(initial=0)) + 1, np.int64)
    pending_P = np.arange(count)
    while len(pending_P):
        repeats = max(1, _BATCH // len(pending_P))
        rows_N = np.repeat(pending_P, repeats)
        pairs, fits_N = _candidates(wanted.at(rows_N), max_nodes, rng)
        fitting = np.flatnonzero(fits_N)
        fits_N[fitting] = [is_ours(name) for name in pairs.at(fitting).classes()]
        fits_PR = fits_N.reshape(-1, repeats)
        has_P = fits_PR.any(1)
        chosen = (np.arange(len(pending_P)) * repeats + fits_PR.argmax(1))[has_P]
        done = pending_P[has_P]
        found.one[done], found.other[done] = pairs.one[chosen], pairs.other[chosen]
        # Counted for all pairs of a sort together: many that cannot be found are given up as soon as one.
        misses_S += np.bincount(sort_N[rows_N], minlength=len(misses_S))
        misses_S[sort_N[done]] = 0
        pending_P = pending_P[~has_P]
        hopeless = pending_P[misses_S[sort_N[pending_P]] > _MAX_TRIES]
        if len(hopeless):
            raise _not_found(wanted, int(hopeless[0]), int(misses_S[sort_N[hopeless[0]]]))
    return found


def _not_found(wanted: PairRequest, row: int, tries: int) -> ConfigError:
    score = "more than 2" if wanted.score[row] == MORE else f"{wanted.score[row]}"
    return ConfigError(
        f"no pair of graphs with {wanted.size[row]} nodes, edge probability"
        f" {wanted.probability[row]:g} and a Weisfeiler-Leman score of {score} was found for one of the three"
        f" datasets in {tries} tries (isomorphic pairs are never in two of them, and there are few small"
        " graphs); raise 'sizes', bring 'edge_probabilities' nearer to 0.5, or ask for none of that score"
    )


def _mask(size_N: NDArray[np.int64], max_nodes: int) -> Mask:
    found: Mask = np.arange(max_nodes) < size_N[:, None]
    return found


def _candidates(
    wanted: PairRequest, max_nodes: int, rng: np.random.Generator
) -> tuple[Pairs, NDArray[np.bool_]]:
    """Return a pair for each request, and (N,) which of them meet it."""
    mask_NM = _mask(wanted.size, max_nodes)
    one_NMM = _erdos_renyi(wanted.probability, mask_NM, rng)
    other_NMM = one_NMM.copy()
    is_first = wanted.score == 1
    if is_first.any():
        other_NMM[is_first] = _erdos_renyi(wanted.probability[is_first], mask_NM[is_first], rng)
    for score, rows in ((2, wanted.score == 2), (MORE, wanted.score == MORE)):
        if rows.any():
            other_NMM[rows] = _switched(
                other_NMM[rows], mask_NM[rows], rng, keeps_two=score == MORE
            )
    found_N = scores(one_NMM, other_NMM, mask_NM)
    fits_N = np.minimum(found_N, MORE) == wanted.score
    has_moved_N = (one_NMM != other_NMM).any((1, 2))
    unclear = np.flatnonzero((found_N == 0) & (wanted.score == MORE) & has_moved_N)
    if len(unclear):
        fits_N[unclear] = are_different(one_NMM[unclear], other_NMM[unclear], mask_NM[unclear])
    same_N = wanted.is_isomorphic
    other_NMM[same_N] = one_NMM[same_N]
    return Pairs(one_NMM, _shuffled(other_NMM, mask_NM, rng), mask_NM), fits_N


def _erdos_renyi(
    probability_N: NDArray[np.float64], mask_NM: Mask, rng: np.random.Generator
) -> Adjacency:
    """Return (N, M, M) graphs in which each edge has the probability of its row."""
    nodes = mask_NM.shape[1]
    is_drawn = rng.random((len(mask_NM), nodes, nodes)) < probability_N[:, None, None]
    upper = np.triu(np.ones((nodes, nodes), np.bool_), 1)
    half = is_drawn & upper & mask_NM[:, None, :] & mask_NM[:, :, None]
    found: Adjacency = half | half.transpose(0, 2, 1)
    return found


def _shuffled(adjacency_NMM: Adjacency, mask_NM: Mask, rng: np.random.Generator) -> Adjacency:
    """Return the graphs with their nodes in a random order, absent ones still last."""
    order_NM = np.argsort(np.where(mask_NM, rng.random(mask_NM.shape), 2.0), 1)
    rows = np.take_along_axis(adjacency_NMM, order_NM[:, :, None], 1)
    return np.take_along_axis(rows, order_NM[:, None, :], 2)


def _complement(adjacency_NMM: Adjacency, mask_NM: Mask) -> Adjacency:
    is_pair = mask_NM[:, None, :] & mask_NM[:, :, None] & ~np.eye(mask_NM.shape[1], dtype=np.bool_)
    found: Adjacency = is_pair & ~adjacency_NMM
    return found


def _switched(
    adjacency_NMM: Adjacency, mask_NM: Mask, rng: np.random.Generator, *, keeps_two: bool
) -> Adjacency:
    """Return the graphs after switches that keep the colours of one round, or of two."""
    # A switch of a graph is also one of its complement, which has fewer edges where there are many.
    size_N = mask_NM.sum(1)
    is_dense = adjacency_NMM.sum((1, 2)) * 2 > size_N * (size_N - 1)
    graph = np.where(is_dense[:, None, None], _complement(adjacency_NMM, mask_NM), adjacency_NMM)
    kept_NM = graph.sum(1) if keeps_two else np.zeros(mask_NM.shape, np.int64)
    edges_NE2, count_N = _edges(graph)
    every = np.arange(len(graph))
    for _ in range(_PROPOSALS):
        draws_3N = rng.random((3, len(graph)))
        at, to = (draws_3N[:2] * count_N).astype(np.int64)
        (a, b), (c, d) = edges_NE2[every, at].T, edges_NE2[every, to].T
        flips = draws_3N[2] < 0.5
        c, d = np.where(flips, d, c), np.where(flips, c, d)
        fits = (a != c) & (a != d) & (b != c) & (b != d) & (count_N > 1)
        fits &= ~graph[every, a, d] & ~graph[every, c, b]
        fits &= (kept_NM[every, a] == kept_NM[every, c]) & (kept_NM[every, b] == kept_NM[every, d])
        row = np.flatnonzero(fits)
        at, to, a, b, c, d = at[row], to[row], a[row], b[row], c[row], d[row]
        graph[row, a, b] = graph[row, b, a] = graph[row, c, d] = graph[row, d, c] = False
        graph[row, a, d] = graph[row, d, a] = graph[row, c, b] = graph[row, b, c] = True
        edges_NE2[row, at] = np.stack([a, d], 1)
        edges_NE2[row, to] = np.stack([c, b], 1)
    return np.where(is_dense[:, None, None], _complement(graph, mask_NM), graph)


def _edges(adjacency_NMM: Adjacency) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return (N, E, 2) the edges of each graph, at least one, and (N,) their number."""
    row, a, b = np.nonzero(np.triu(adjacency_NMM))
    count_N = np.bincount(row, minlength=len(adjacency_NMM))
    starts_N = np.cumsum(count_N) - count_N
    found = np.zeros((len(count_N), max(1, int(count_N.max(initial=0))), 2), np.int64)
    found[row, np.arange(len(row)) - starts_N[row]] = np.stack([a, b], 1)
    return found, count_N
