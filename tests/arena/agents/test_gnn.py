"""The body `gnn`: what it sees of two graphs, and what it must not."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from ludus.arena.agents.bodies.gnn import Gnn, GnnParameters
from ludus.arena.agents.body import Rows
from ludus.arena.scenario import ObservationSizes
from ludus.arena.scenarios.graph_isomorphism import GraphIsomorphism, GraphIsomorphismParameters
from ludus.arena.scenarios.graph_isomorphism.colours import scores
from ludus.config.sections import validate
from tests.arena.sections import GRAPHS

M = 8


def body(num_layers: int = 2, width: int = 8, max_nodes: int = M, *, compares: bool = True) -> Gnn:
    torch.manual_seed(0)
    shapes = {"adjacency": (2, max_nodes, max_nodes), "node_mask": (2, max_nodes)}
    seen = ObservationSizes(shapes, num_symbols=2 * max_nodes, max_message_rounds=2, num_channels=1)
    params = GnnParameters(kind="gnn", num_layers=num_layers, width=width, compares=compares)
    return Gnn(params, seen)


def pairs(**changes: object) -> Rows:
    """Return pairs of 7 and 8 nodes, in each of which one node of either graph has been named."""
    params = validate(GraphIsomorphismParameters, {**GRAPHS, **changes}, source="test")
    train = GraphIsomorphism(params).make_datasets(0).train
    named = torch.tensor([1, M + 2]).expand(len(train), 2).unsqueeze(-1)
    clock = torch.ones(len(train), dtype=torch.long)
    return {**train.data, "message_history": named, "round": clock}


def moved(rows: Rows, places: Tensor) -> Rows:
    """Return the rows with node i of the pair at places[i]; an order of all 2 x M nodes, graph by graph."""
    order = torch.argsort(places)
    inner = order.reshape(2, M) % M
    graphs = order.reshape(2, M)[:, 0] // M
    adjacency = torch.stack(
        [rows["adjacency"][:, graphs[g]][:, inner[g]][:, :, inner[g]] for g in range(2)], 1
    )
    mask = torch.stack([rows["node_mask"][:, graphs[g]][:, inner[g]] for g in range(2)], 1)
    history = places[rows["message_history"]]
    return {**rows, "adjacency": adjacency, "node_mask": mask, "message_history": history}


def same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-4, atol=1e-4)


ONE, OTHER = torch.tensor([3, 0, 6, 7, 1, 5, 2, 4]), torch.tensor([6, 5, 0, 2, 7, 1, 4, 3])
ORDERS = {
    "nodes": torch.cat([ONE, M + OTHER]),
    "graphs": torch.arange(2 * M).roll(M),
    "both": torch.cat([M + ONE, OTHER]),
}


@pytest.mark.parametrize("order", ORDERS)
def test_the_order_of_nodes_and_of_the_two_graphs_does_not_matter(order: str) -> None:
    rows, gnn, places = pairs(), body(), ORDERS[order]
    found, again = gnn(rows), gnn(moved(rows, places))
    assert same(again.whole, found.whole)
    assert same(again.symbols[:, places], found.symbols)
    assert found.present is not None
    assert again.present is not None
    assert torch.equal(again.present[:, places], found.present)
    assert found.context is not None
    assert again.context is not None
    is_swapped = places[0] >= M
    assert same(again.context.flip(1) if is_swapped else again.context, found.context)
    assert not same(again.symbols, found.symbols)


def test_nodes_that_are_not_there_are_never_seen() -> None:
    rows = pairs()
    more = {
        **rows,
        "adjacency": torch.nn.functional.pad(rows["adjacency"], (0, 3, 0, 3)),
        "node_mask": torch.nn.functional.pad(rows["node_mask"], (0, 3)),
        "message_history": torch.tensor([1, M + 3 + 2]).reshape(1, 2, 1).expand(24, 2, 1),
    }
    # Whatever stands in the places of nodes that are not there.
    gone = ~more["node_mask"]
    more["adjacency"][gone] = 1.0
    more["adjacency"].transpose(-1, -2)[gone] = 1.0
    found, padded = body()(rows), body(max_nodes=M + 3)(more)
    assert same(padded.whole, found.whole)
    nodes = padded.symbols.reshape(24, 2, M + 3, -1)[:, :, :M].reshape(24, 2 * M, -1)
    assert found.present is not None
    assert same(nodes[found.present], found.symbols[found.present])


def test_naming_a_node_that_is_not_there_says_nothing() -> None:
    rows = pairs(sizes=[7])
    rows = {name: torch.nn.functional.pad(rows[name], (0, 1)) for name in ("node_mask",)} | {
        "adjacency": torch.nn.functional.pad(rows["adjacency"], (0, 1, 0, 1)),
        "round": rows["round"],
    }
    silence = torch.full((24, 2, 1), -1)
    said = silence.clone()
    said[:, 0] = M - 1
    gnn = body()
    assert torch.equal(
        gnn({**rows, "message_history": said}).whole,
        gnn({**rows, "message_history": silence}).whole,
    )


def test_naming_a_node_is_seen_and_so_is_when() -> None:
    rows, gnn = pairs(), body()
    found = [gnn({**rows, "message_history": rows["message_history"] * 0 + n}) for n in (0, 1)]
    turned = gnn({**rows, "message_history": rows["message_history"].flip(1)})
    later = gnn({**rows, "round": rows["round"] + 1})
    assert not same(found[0].symbols, found[1].symbols)
    assert same(turned.whole, gnn(rows).whole)  # at first a question and its answer look alike
    torch.nn.init.normal_(gnn.when.weight)
    assert not same(
        gnn({**rows, "message_history": rows["message_history"].flip(1)}).whole, gnn(rows).whole
    )
    assert not same(later.whole, gnn(rows).whole)


@pytest.mark.covers("002-S11")
@pytest.mark.parametrize("num_layers", [0, 1, 2, 3])
def test_it_tells_apart_just_the_pairs_whose_score_is_not_above_its_layers(num_layers: int) -> None:
    rows = pairs(sizes=[8], train_size=60, non_isomorphic_share=0.9)
    silent = {**rows, "message_history": torch.full((60, 2, 1), -1)}
    silent["adjacency"] = silent["adjacency"].double()
    differs = body(num_layers, width=16).double()(silent).whole[:, :16].amax(-1) > 1e-9
    adjacency = rows["adjacency"].numpy().astype(np.bool_)
    score = scores(adjacency[:, 0], adjacency[:, 1], rows["node_mask"][:, 0].numpy())
    assert set(score.tolist()) >= {0, 1, 2, 3}
    assert differs.tolist() == [0 < one <= num_layers for one in score.tolist()]


def test_width_is_the_number_of_features_of_a_node() -> None:
    gnn = body(width=5)
    found = gnn(pairs())
    assert gnn.width == 15
    assert found.whole.shape == (24, 15)
    assert found.symbols.shape == (24, 2 * M, gnn.symbol_width) == (24, 2 * M, 5)
    assert found.context is not None
    assert found.context.shape == (24, 2, gnn.context_width) == (24, 2, 10)


def test_one_that_compares_tells_a_node_how_like_it_is_to_those_named_in_the_other_graph() -> None:
    rows = pairs(non_isomorphic_share=0.0, sizes=[8])
    asked = rows["message_history"].clone()
    asked[:, 1] = -1
    gnn = body(num_layers=3)
    mask = rows["node_mask"].unsqueeze(-1).float()
    silent = gnn._looked(torch.zeros(24, 2, M, 2), mask, rows["adjacency"])
    found = gnn._likenesses(silent, asked)
    assert found.shape == (24, 2 * M, 2)
    # Of its own graph a node is told nothing, nor of a message that was not sent.
    assert not found[:, :M].any()
    assert not found[:, :, 1].any()
    degrees = rows["adjacency"].sum(-1)
    best = found[:, M:, 0].max(-1)
    # The graphs are isomorphic, so one node at least is just like the one that was named.
    assert bool((best.values > 0.99).all())
    assert torch.equal(degrees[:, 1].gather(1, best.indices[:, None])[:, 0], degrees[:, 0, 1])


def test_one_that_does_not_compare_is_told_nothing_more() -> None:
    rows, both = pairs(), [body(compares=True), body(compares=False)]
    names = [{name for name, _ in gnn.named_parameters()} for gnn in both]
    assert names[0] - names[1] == {"likeness.weight", "likeness.bias"}
    both[0].load_state_dict(both[1].state_dict(), strict=False)
    found = [gnn(rows) for gnn in both]
    assert torch.equal(found[0].whole, found[1].whole)
    assert not same(found[0].symbols, found[1].symbols)
