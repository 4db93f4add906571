"""Colour refinement: hand-worked pairs, and networkx."""

from __future__ import annotations

import itertools

import networkx
import numpy as np
import pytest

from ludus.arena.scenarios.graph_isomorphism.colours import are_different, scores


def path(*nodes: int) -> list[tuple[int, int]]:
    return list(itertools.pairwise(nodes))


def ring(*nodes: int) -> list[tuple[int, int]]:
    return path(*nodes, nodes[0])


def graph(edges: list[tuple[int, int]], max_nodes: int) -> np.ndarray:
    found = np.zeros((1, max_nodes, max_nodes), np.bool_)
    for a, b in edges:
        found[0, a, b] = found[0, b, a] = True
    return found


PAIRS = [
    # A path has no node of degree 3, a star has one.
    (4, path(0, 1, 2, 3), [(0, 1), (0, 2), (0, 3)], 1),
    # Both have degrees 1, 1, 2, 2, 2, but only in the second is a node of degree 1 beside another.
    (5, path(0, 1, 2, 3, 4), [*ring(0, 1, 2), (3, 4)], 2),
    # Both have three nodes of degree 2 between two of degree 2, but only in a ring is each beside two such.
    (7, path(0, 1, 2, 3, 4, 5, 6), [*ring(0, 1, 2), *path(3, 4, 5, 6)], 3),
    # Every node of either has two neighbours: nothing is ever refined.
    (6, ring(0, 1, 2, 3, 4, 5), [*ring(0, 1, 2), *ring(3, 4, 5)], 0),
    (5, path(0, 1, 2, 3, 4), path(3, 1, 4, 0, 2), 0),
]


@pytest.mark.covers("002-S11")
@pytest.mark.parametrize(("size", "one", "other", "score"), PAIRS)
def test_the_score_is_the_first_round_after_which_the_colours_differ(
    size: int, one: list[tuple[int, int]], other: list[tuple[int, int]], score: int
) -> None:
    for padding in (0, 2):
        both = graph(one, size + padding), graph(other, size + padding)
        mask = np.arange(size + padding)[None] < size
        assert scores(*both, mask).tolist() == [score]


def test_graphs_that_no_round_tells_apart_are_still_seen_to_be_different() -> None:
    mask = np.ones((1, 6), np.bool_)
    rings = graph([*ring(0, 1, 2), *ring(3, 4, 5)], 6)
    assert are_different(graph(ring(0, 1, 2, 3, 4, 5), 6), rings, mask).tolist() == [True]
    assert are_different(graph([*ring(0, 2, 4), *ring(1, 3, 5)], 6), rings, mask).tolist() == [
        False
    ]


def drawn(count: int, size: int) -> np.ndarray:
    upper = np.triu(np.random.default_rng(size).random((count, size, size)) < 0.4, 1)
    return np.asarray(upper | upper.transpose(0, 2, 1))


def by_networkx(one: networkx.Graph, other: networkx.Graph) -> int:
    """Return the first round after which the colours differ, by the hashes of networkx; 0: never."""
    for rounds in range(1, len(one) + 1):
        hashes = [
            networkx.weisfeiler_lehman_graph_hash(each, iterations=rounds, node_attr="colour")
            for each in (one, other)
        ]
        if hashes[0] != hashes[1]:
            return rounds
    return 0


@pytest.mark.parametrize("size", [4, 5, 6])
def test_scores_and_differences_are_those_of_networkx(size: int) -> None:
    one = drawn(120, size)
    other = np.roll(one, 1, 0)
    mask = np.ones((120, size), np.bool_)
    graphs = [networkx.from_numpy_array(each) for each in one]
    for each in graphs:
        # Said aloud, so that every version of networkx begins with one colour.
        networkx.set_node_attributes(each, "one", "colour")
    pairs = list(zip(graphs, [graphs[-1], *graphs[:-1]], strict=True))
    assert scores(one, other, mask).tolist() == [by_networkx(*pair) for pair in pairs]
    told = are_different(one, other, mask).tolist()
    assert told == [not networkx.is_isomorphic(*pair) for pair in pairs]
    assert 0 < sum(told) < 120
