"""The pairs of the graph isomorphism scenario are as its keys say."""

from __future__ import annotations

from typing import Any

import networkx
import numpy as np
import pytest
import torch

from ludus.arena.playing.dataset import ArenaDataset
from ludus.arena.scenario import Datasets
from ludus.arena.scenarios.graph_isomorphism import (
    GraphIsomorphism,
    GraphIsomorphismParameters,
    pairs,
)
from ludus.arena.scenarios.graph_isomorphism.colours import scores
from ludus.config.sections import validate
from ludus.core.errors import ConfigError
from tests.arena.sections import GRAPHS


def scenario(**changes: Any) -> GraphIsomorphism:
    params = validate(GraphIsomorphismParameters, {**GRAPHS, **changes}, source="test")
    return GraphIsomorphism(params)


def datasets(seed: int = 0, **changes: Any) -> Datasets:
    return scenario(**changes).make_datasets(seed)


def scores_of(dataset: ArenaDataset, label: int) -> list[int]:
    rows = dataset.y == label
    adjacency = dataset.data["adjacency"][rows].numpy().astype(np.bool_)
    mask = dataset.data["node_mask"][rows, 0].numpy()
    return scores(adjacency[:, 0], adjacency[:, 1], mask).tolist()


def graphs_of(dataset: ArenaDataset) -> list[list[networkx.Graph]]:
    """Return the two graphs of each pair, as networkx has them."""
    return [
        [
            networkx.from_numpy_array(side[there][:, there].numpy())
            for side, there in zip(adjacency, mask, strict=True)
        ]
        for adjacency, mask in zip(
            dataset.data["adjacency"], dataset.data["node_mask"], strict=True
        )
    ]


def pairs_by_hash(dataset: ArenaDataset) -> dict[tuple[str, ...], list[list[networkx.Graph]]]:
    """Return the pairs by the hashes of their graphs, in either order; the hashes are of networkx."""
    found: dict[tuple[str, ...], list[list[networkx.Graph]]] = {}
    for pair in graphs_of(dataset):
        for graph in pair:
            # Said aloud, so that every version of networkx begins with one colour.
            networkx.set_node_attributes(graph, "one", "colour")
        hashes = [
            networkx.weisfeiler_lehman_graph_hash(graph, node_attr="colour") for graph in pair
        ]
        found.setdefault(tuple(sorted(hashes)), []).append(pair)
    return found


def are_isomorphic(one: list[networkx.Graph], other: list[networkx.Graph]) -> bool:
    """Say whether one pair is the other but for the order of the graphs and of their nodes."""
    return any(
        all(map(networkx.is_isomorphic, one, order)) for order in (other, list(reversed(other)))
    )


def shared(one: ArenaDataset, other: ArenaDataset) -> int:
    """Return how many pairs of one dataset are pairs of the other up to isomorphism."""
    known = pairs_by_hash(other)
    return sum(
        any(are_isomorphic(pair, candidate) for candidate in known.get(key, []))
        for key, pairs in pairs_by_hash(one).items()
        for pair in pairs
    )


def everything(made: Datasets) -> list[torch.Tensor]:
    splits = (made.train, made.validation, made.test)
    return [tensor for split in splits for tensor in (*split.data.values(), split.y)]


@pytest.mark.covers("002-S11")
def test_the_label_says_whether_the_two_graphs_are_isomorphic() -> None:
    train = datasets().train
    for graphs, y in zip(graphs_of(train), train.y.tolist(), strict=True):
        assert networkx.is_isomorphic(*graphs) == (y == 1)


def test_graphs_are_simple_and_nodes_that_are_not_there_have_no_edges() -> None:
    data = datasets().train.data
    adjacency, mask = data["adjacency"], data["node_mask"]
    assert adjacency.dtype == torch.float32
    assert mask.dtype == torch.bool
    assert set(adjacency.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(adjacency, adjacency.transpose(-1, -2))
    assert not adjacency.diagonal(dim1=-2, dim2=-1).any()
    assert not adjacency[~mask].any()
    assert torch.equal(mask[:, 0], mask[:, 1])
    assert torch.equal(mask, mask.sort(-1, descending=True).values)


@pytest.mark.covers("002-S11")
def test_scores_are_in_the_proportions_asked_for() -> None:
    mix = {"score_1": 0.5, "score_2": 0.25, "more": 0.25}
    found = scores_of(datasets(wl_scores=mix, train_size=40, sizes=[7]).train, 0)
    counts = [found.count(1), found.count(2), sum(one == 0 or one > 2 for one in found)]
    assert counts == [10, 5, 5]


@pytest.mark.parametrize("share", [0.0, 0.25, 1.0])
def test_the_share_of_pairs_that_are_not_isomorphic_is_exact(share: float) -> None:
    train = datasets(non_isomorphic_share=share).train
    assert int((train.y == 0).sum()) == 24 * share


def test_sizes_are_the_numbers_of_nodes_and_decide_the_symbols() -> None:
    made = scenario(sizes=[6, 9])
    mask = made.make_datasets(0).train.data["node_mask"]
    assert set(mask.sum(-1).unique().tolist()) == {6, 9}
    assert made.num_symbols == 18


@pytest.mark.parametrize("probability", [0.3, 0.7])
def test_edges_are_as_likely_as_the_config_says(probability: float) -> None:
    made = datasets(
        edge_probabilities=[probability],
        sizes=[9],
        train_size=200,
        wl_scores={"score_1": 1.0, "score_2": 0.0, "more": 0.0},
    )
    adjacency = made.train.data["adjacency"]
    # 14,400 places: three standard deviations are about 0.012.
    assert abs(float(adjacency.sum() / (400 * 9 * 8)) - probability) < 0.015


def test_a_graph_alone_does_not_give_the_label_away() -> None:
    made = datasets(train_size=400, sizes=[7], edge_probabilities=[0.2, 0.6]).train
    edges = made.data["adjacency"].sum((-1, -2)) / 2
    means = [float(edges[made.y == label].mean()) for label in (0, 1)]
    # Some six edges of deviation over 400 graphs: three standard errors of a difference.
    assert abs(means[0] - means[1]) < 0.9


def test_nodes_of_both_graphs_are_in_no_particular_order() -> None:
    made = datasets(train_size=200, sizes=[7], edge_probabilities=[0.5]).train
    degrees = made.data["adjacency"].sum(-1)
    # Switches keep the degree of each node, so without a shuffle nearly all would agree.
    alike = float((degrees[:, 0] == degrees[:, 1]).float().mean())
    assert alike < 0.5


def test_there_are_as_many_pairs_as_the_config_says() -> None:
    made = datasets(train_size=5, validation_size=3, test_size=4)
    assert [len(one) for one in (made.train, made.validation, made.test)] == [5, 3, 4]


@pytest.mark.covers("002-S11")
@pytest.mark.parametrize("seed", [0, 1])
def test_no_test_pair_is_a_training_pair_up_to_isomorphism(seed: int) -> None:
    # Few graphs of seven nodes are hard: drawn freely, every second test pair would be a training pair.
    asked: dict[str, Any] = {
        "sizes": [7],
        "wl_scores": {"score_1": 0.1, "score_2": 0.2, "more": 0.7},
        "train_size": 300,
        "validation_size": 60,
        "test_size": 60,
    }
    made = datasets(seed, **asked)
    assert shared(made.test, made.train) == 0
    assert shared(made.validation, made.train) == 0
    assert shared(made.test, made.validation) == 0
    # Another seed splits the classes anew, so its training pairs show that the count finds what is there.
    assert shared(made.test, datasets(seed + 2, **asked).train) > 5


def test_a_class_is_the_same_for_any_order_of_nodes_and_graphs_and_differs_otherwise() -> None:
    # All 1,253 graphs of up to seven nodes; a pair holds each graph and the one before it.
    every = [graph for graph in networkx.graph_atlas_g() if len(graph) > 0]
    adjacency = np.zeros((len(every), 7, 7), np.bool_)
    mask = np.zeros((len(every), 7), np.bool_)
    for row, graph in enumerate(every):
        size = len(graph)
        adjacency[row, :size, :size] = networkx.to_numpy_array(graph, dtype=np.bool_)
        mask[row, :size] = True
    alone = pairs.Pairs(adjacency, adjacency, mask)
    assert len(set(alone.classes())) == len(every) == 1252
    of_seven = np.flatnonzero(mask.all(1))
    one, other = adjacency[of_seven], np.roll(adjacency[of_seven], 1, 0)
    both = pairs.Pairs(one, other, mask[of_seven])
    rng = np.random.default_rng(0)
    renamed = pairs.Pairs(
        *(pairs._shuffled(side, both.mask, rng) for side in (other, one)), both.mask
    )
    assert both.classes() == renamed.classes()
    assert len(set(both.classes())) == len(of_seven) == 1044


def test_a_seed_gives_the_same_pairs_and_another_seed_others(monkeypatch, tmp_path) -> None:
    one = everything(datasets())
    monkeypatch.setenv("LUDUS_CACHE", str(tmp_path))
    again, other = everything(datasets()), everything(datasets(seed=1))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))
    assert not torch.equal(one[0], other[0])


def test_the_test_pairs_stay_when_more_is_learned_from() -> None:
    easy = {"sizes": [4], "wl_scores": {"score_1": 1.0, "score_2": 0.0, "more": 0.0}}
    one = datasets(**easy, train_size=20, validation_size=60, test_size=60)
    other = datasets(**easy, train_size=300, validation_size=60, test_size=60)
    assert torch.equal(one.test.data["adjacency"], other.test.data["adjacency"])
    assert torch.equal(one.validation.data["adjacency"], other.validation.data["adjacency"])


def test_pairs_are_made_once(monkeypatch) -> None:
    one = everything(datasets(seed=5))
    monkeypatch.setattr(GraphIsomorphism, "_made", lambda self, seed: pytest.fail("made again"))
    again = everything(datasets(seed=5))
    assert all(torch.equal(a, b) for a, b in zip(one, again, strict=True))


def test_a_score_that_no_pair_can_have_is_refused_soon_however_many_are_wanted(monkeypatch) -> None:
    calls = []

    def counted(*given: Any) -> Any:
        calls.append(given)
        return candidates(*given)

    candidates = pairs._candidates
    monkeypatch.setattr(pairs, "_candidates", counted)
    monkeypatch.setattr(pairs, "_MAX_TRIES", 10_000)
    hard = {"score_1": 0.0, "score_2": 0.0, "more": 1.0}
    told = "graphs with 4 nodes, edge probability 0.4 and a Weisfeiler-Leman score of more than 2"
    with pytest.raises(ConfigError, match=told):
        datasets(sizes=[4, 8], edge_probabilities=[0.4], wl_scores=hard, test_size=1000)
    # 4,096 at once, half of them for the size that can be.
    assert len(calls) < 16


def test_a_dataset_that_no_class_is_left_for_is_refused() -> None:
    # Of two nodes there are two graphs, and one pair that differs, in either order.
    with pytest.raises(ConfigError, match="no pair of graphs with 2 nodes"):
        datasets(
            sizes=[2],
            non_isomorphic_share=1.0,
            wl_scores={"score_1": 1.0, "score_2": 0.0, "more": 0.0},
        )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"wl_scores": {"score_1": 0.5, "score_2": 0.5, "more": 0.5}}, "add up to 1.5; make it 1"),
        ({"sizes": []}, "sizes"),
        ({"sizes": [1]}, "sizes"),
        ({"edge_probabilities": [1.0]}, "edge_probabilities"),
        ({"non_isomorphic_share": 1.5}, "non_isomorphic_share"),
        ({"train_size": 0}, "train_size"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        scenario(**changes)
