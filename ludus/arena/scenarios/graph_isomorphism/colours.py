"""Colour refinement (Weisfeiler-Leman): the number of rounds that distinguish two graphs.

At first all nodes have one colour. A round gives each node a new colour by its own and by the multiset of
its neighbours' colours. The score of a pair is the first round after which the two graphs hold different
multisets of colours: 1 where the degrees differ already, 0 where no round ever distinguishes them.

A colour is a 64-bit hash, so a collision is possible in principle, once in 10^19.

Shapes: N pairs, M nodes of a graph, S sets of colours that are refined at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Colours = NDArray[np.uint64]
Adjacency = NDArray[np.bool_]
Mask = NDArray[np.bool_]

_ODD, _FIRST, _SECOND = (
    np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
)
_SHIFTS = np.uint64(30), np.uint64(27), np.uint64(31)


def _mixed(values: Colours) -> Colours:
    """Return the hash of each value (the finaliser of splitmix64)."""
    values = values + _ODD
    values = (values ^ (values >> _SHIFTS[0])) * _FIRST
    values = (values ^ (values >> _SHIFTS[1])) * _SECOND
    return values ^ (values >> _SHIFTS[2])


def refined(colours_NMS: Colours, adjacency_NMM: Adjacency, mask_NM: Mask) -> Colours:
    """Return the colours after one more round; absent nodes stay at 0."""
    there_NM1 = mask_NM[..., None]
    mixed_NMS = _mixed(colours_NMS) * there_NM1
    sums_NMS = np.matmul(adjacency_NMM.astype(np.uint64), mixed_NMS)
    found: Colours = _mixed(_mixed(mixed_NMS) + sums_NMS) * there_NM1
    return found


def scores(one_NMM: Adjacency, other_NMM: Adjacency, mask_NM: Mask) -> NDArray[np.int64]:
    """Return (N,) the score of each pair of graphs with the same number of nodes; 0: never."""
    found_N = np.zeros(len(one_NMM), np.int64)
    one_NM1 = other_NM1 = mask_NM[..., None].astype(np.uint64)
    # A partition of M nodes can be refined M - 1 times at most.
    for index in range(1, mask_NM.shape[1] + 1):
        one_NM1 = refined(one_NM1, one_NMM, mask_NM)
        other_NM1 = refined(other_NM1, other_NMM, mask_NM)
        differ_N = (np.sort(one_NM1, 1) != np.sort(other_NM1, 1)).any((1, 2))
        found_N[differ_N & (found_N == 0)] = index
    return found_N


def signatures(adjacency_NMM: Adjacency, mask_NM: Mask) -> Colours:
    """Return (N, M) numbers that are the same for isomorphic graphs, sorted.

    Each node in turn is given a unique colour and the rest is refined: where all of that agrees, two small
    graphs are isomorphic as far as is known; where it does not, they certainly are not.
    """
    nodes = mask_NM.shape[1]
    colours_NMS = mask_NM[..., None].astype(np.uint64) + np.eye(nodes, dtype=np.uint64)
    for _ in range(nodes):
        colours_NMS = refined(colours_NMS, adjacency_NMM, mask_NM)
    each_NS: Colours = _mixed(colours_NMS).sum(1) * mask_NM
    return np.sort(each_NS, 1)


def are_different(one_NMM: Adjacency, other_NMM: Adjacency, mask_NM: Mask) -> NDArray[np.bool_]:
    """Return (N,) which pairs are certainly not isomorphic."""
    found: NDArray[np.bool_] = (signatures(one_NMM, mask_NM) != signatures(other_NMM, mask_NM)).any(
        1
    )
    return found
