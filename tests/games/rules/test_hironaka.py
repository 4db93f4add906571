"""Hironaka's game by values of an independent implementation, by hand, and by obvious versions."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from ludus.core.errors import ConfigError, LudusError
from ludus.games.hironaka.host_actions import (
    decode_host_action,
    encode_host_action,
    host_action_table,
)
from ludus.games.hironaka.polyhedra import (
    features,
    newton_polytope,
    reposition,
    rescale,
    shift,
    vertices,
)
from ludus.games.rules.hironaka import Hironaka
from ludus.seeds import generator
from tests.games.sections import hironaka

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "hironaka.json").read_text())


def points(*games: list[list[float]]) -> Tensor:
    """Return games of points, padded to the longest."""
    longest = max(map(len, games))
    rows = [g + [[-1.0] * len(g[0])] * (longest - len(g)) for g in games]
    return torch.tensor(rows).float()


def left(points_ND: Tensor) -> set[tuple[float, ...]]:
    """Return the points of a game that are there."""
    return {tuple(row) for row in points_ND.tolist() if row[0] >= 0}


@pytest.mark.covers("001-S1")
@pytest.mark.parametrize(
    "case", GOLDEN["cases"], ids=lambda c: f"{c['dimension']}-{len(c['start'])}"
)
def test_every_value_of_the_independent_implementation_is_met(case: dict[str, Any]) -> None:
    known = {name: torch.tensor(value) for name, value in case.items()}
    filtered = newton_polytope(known["start"].float())
    assert torch.equal(filtered, known["after_newton_polytope"].float())
    coords = host_action_table(case["dimension"])[known["host_action"]]
    assert torch.equal(coords, known["host_coords"])
    shifted = shift(filtered, known["host_coords"], known["agent_axis"])
    assert torch.equal(shifted, known["after_shift"].float())
    settled = newton_polytope(shifted)
    assert torch.equal(settled, known["after_shift_and_newton_polytope"].float())
    torch.testing.assert_close(rescale(settled), known["after_rescale"], atol=1e-6, rtol=0)
    game = Hironaka(
        dimension=case["dimension"],
        max_num_points=case["max_num_points"],
        max_value=20,
        scale_observation=False,
    )
    state, _ = game.step(game.start(known["start"].float()), "host", known["host_action"])
    state, rewards = game.step(state, "agent", known["agent_axis"])
    assert torch.equal(state["points"], features(settled))
    assert torch.equal(game.done(state), known["ended"])
    new = known["ended"] & ((filtered[..., 0] >= 0).sum(1) > 1)
    assert torch.equal(rewards, torch.stack([new.float(), -new.float()], 1))


@pytest.mark.covers("001-S3")
def test_the_hosts_moves_are_the_sets_of_two_or_more_in_the_order_of_their_bits() -> None:
    for dimension, table in GOLDEN["host_action_table"].items():
        assert host_action_table(int(dimension)).tolist() == table
    sets = {0: [0, 1], 1: [0, 2], 2: [1, 2], 3: [0, 1, 2]}
    for action, coords in sets.items():
        assert encode_host_action(coords) == action
        assert decode_host_action(action, 3) == coords
    for dimension in (2, 3, 5, 8):
        table, codes = host_action_table(dimension), torch.arange(2**dimension - dimension - 1)
        assert torch.equal(encode_host_action(table), codes)
        assert torch.equal(encode_host_action(table.float()), codes)
        assert torch.equal(decode_host_action(codes, dimension), table)


@pytest.mark.parametrize("coords", [[1], [], [0, 0], [-1, 2]])
def test_a_list_that_is_no_move_of_the_host_is_refused(coords: list[int]) -> None:
    with pytest.raises(LudusError, match="give two or more different coordinates"):
        encode_host_action(coords)
    with pytest.raises(LudusError, match="in dimension 3 there are 0 to 3"):
        decode_host_action(4, 3)


@pytest.mark.covers("001-S1")
def test_a_game_worked_by_hand() -> None:
    game = hironaka(dimension=2, max_num_points=4)
    start = points([[4, 0], [1, 1], [0, 4], [1, 1]])
    assert left(newton_polytope(start)[0]) == {(4, 0), (1, 1), (0, 4)}
    assert newton_polytope(start)[0, 3].tolist() == [-1, -1]
    state, _ = game.step(game.start(start), "host", torch.tensor([0]))
    assert game.named(game.observe(state, "agent"), "agent")["coords"].tolist() == [[1, 1]]
    state, rewards = game.step(state, "agent", torch.tensor([0]))
    # (4, 0) -> (4, 0), (1, 1) -> (2, 1), (0, 4) -> (4, 4), which (2, 1) dominates.
    assert left(state["points"][0]) == {(4, 0), (2, 1)}
    assert rewards.tolist() == [[0, 0]]
    assert game.text(state, 0) == "(4, 0) (2, 1)"
    state, _ = game.step(state, "host", torch.tensor([0]))
    state, rewards = game.step(state, "agent", torch.tensor([1]))
    # (4, 0) -> (4, 4) and (2, 1) -> (2, 3): one is left, and the host has won.
    assert left(state["points"][0]) == {(2, 3)}
    assert rewards.tolist() == [[1, -1]]


def test_a_shift_leaves_what_may_not_move() -> None:
    game = [[1.0, 2.0, 3.0], [3.0, 1.0, 0.0]]
    before = points(game, game, [[1.0, 2.0, 3.0]])
    coords = torch.tensor([[1, 1, 0], [1, 1, 0], [1, 1, 0]])
    after = shift(before, coords, torch.tensor([1, 2, 1]))
    assert left(after[0]) == {(1, 3, 3), (3, 4, 0)}
    assert torch.equal(after[1:], before[1:])


def test_rescaling_and_repositioning_by_hand() -> None:
    given = points([[4.0, 1.0], [2.0, 3.0]], [[0.0, 0.0]])
    assert rescale(given).tolist() == [[[1, 0.25], [0.5, 0.75]], [[0, 0], [-1, -1]]]
    assert reposition(given).tolist() == [[[2, 0], [0, 2]], [[0, 0], [-1, -1]]]


@pytest.mark.covers("001-D12")
def test_points_are_sorted_by_all_coordinates_so_ties_have_one_order() -> None:
    rows = [[2.0, 1.0], [0.0, 5.0], [2.0, 3.0], [-1.0, -1.0], [1.0, 9.0]]
    wanted = [[2, 3], [2, 1], [1, 9], [0, 5], [-1, -1]]
    for order in itertools.permutations(rows):
        assert features(torch.tensor([order])).tolist() == [wanted]


@pytest.mark.covers("001-S2")
def test_a_random_start_is_uniform_and_reaches_the_greatest_value() -> None:
    game = Hironaka(dimension=2, max_num_points=2, max_value=3, scale_observation=False)
    kept = game.reset(20000, generator(0, "start"))["points"]
    # Of the 256 starts, 60 have two points of which neither has both coordinates at most the other's.
    share = (kept[:, 1, 0] >= 0).float().mean()
    pairs = itertools.product(itertools.product(range(4), repeat=2), repeat=2)
    apart = sum((p[0] < q[0] and p[1] > q[1]) or (p[0] > q[0] and p[1] < q[1]) for p, q in pairs)
    assert abs(share - apart / 256) < 0.01
    assert set(kept.unique().tolist()) == {-1, 0, 1, 2, 3}


def obviously_undominated(rows: list[tuple[float, ...]]) -> set[tuple[float, ...]]:
    own = set(rows)
    return {p for p in own if not any(q != p and all(np.greater_equal(p, q)) for q in own)}


def obvious_vertices(rows: set[tuple[float, ...]]) -> set[tuple[float, ...]]:
    """Return the points p for which no mean of the others is below p, by scipy's linear programs."""
    from scipy.optimize import linprog

    found = set()
    for p in rows:
        others = np.array([q for q in rows if q != p]).reshape(-1, len(p))
        if len(others) == 0:
            found.add(p)
            continue
        ones = np.ones((1, len(others)))
        outcome = linprog(0 * ones[0], A_ub=others.T, b_ub=p, A_eq=ones, b_eq=[1.0])
        if outcome.status == 2:
            found.add(p)
    return found


@pytest.mark.covers("001-D14")
def test_the_vertices_by_hand() -> None:
    corners = [[2.0, 5.0], [3.0, 2.0], [5.0, 1.0]]
    assert left(vertices(points(corners))[0]) == {(2, 5), (3, 2), (5, 1)}
    # (2, 2) lies on the edge from (4, 0) to (0, 4), (3, 2) above it; both are undominated.
    edge = [[4.0, 0.0], [2.0, 2.0], [0.0, 4.0]]
    assert left(newton_polytope(points(edge))[0]) == {(4, 0), (2, 2), (0, 4)}
    assert left(vertices(points(edge))[0]) == {(4, 0), (0, 4)}
    assert left(vertices(points([[4.0, 0.0], [3.0, 2.0], [0.0, 4.0]]))[0]) == {(4, 0), (0, 4)}
    assert left(vertices(points([[4.0, 0.0], [1.0, 2.0], [0.0, 4.0]]))[0]) == {
        (4, 0),
        (1, 2),
        (0, 4),
    }
    # The centre of a triangle, and a point just below it.
    flat = [[3.0, 0.0, 0.0], [0.0, 3.0, 0.0], [0.0, 0.0, 3.0]]
    assert len(left(vertices(points([*flat, [1.0, 1.0, 1.0]]))[0])) == 3
    assert len(left(vertices(points([*flat, [1.0, 1.0, 0.0]]))[0])) == 4
    assert left(vertices(points([[1.0, 1.0], [1.0, 1.0]]))[0]) == {(1, 1)}


@pytest.mark.covers("001-S1", "001-D14")
@pytest.mark.parametrize(
    ("dimension", "count", "value"), [(2, 8, 6), (3, 20, 20), (3, 12, 3), (4, 12, 20), (5, 10, 4)]
)
def test_both_filters_agree_with_the_obvious_versions(
    dimension: int, count: int, value: int
) -> None:
    draws = generator(dimension, "points", count)
    drawn = torch.randint(value + 1, (25, count, dimension), generator=draws).float()
    whole, fast, exact = drawn.tolist(), newton_polytope(drawn), vertices(drawn)
    scaled = vertices(rescale(drawn))
    for game in range(25):
        rows = obviously_undominated([tuple(row) for row in whole[game]])
        assert left(fast[game]) == rows
        corners = obvious_vertices(rows)
        assert left(exact[game]) == corners
        assert len(left(scaled[game])) == len(corners)


def test_a_point_on_an_edge_is_no_vertex_at_any_scale() -> None:
    for size in (3, 7, 11, 13, 19):
        line = points([[float(x), float(size - x)] for x in range(size + 1)])
        for given in (line, rescale(line)):
            assert len(left(vertices(given)[0])) == 2


def test_points_that_were_dropped_or_given_padded_play_no_part() -> None:
    draws = generator(0, "points")
    drawn = torch.randint(9, (40, 6, 3), generator=draws).float()
    padded = torch.cat([drawn, torch.full((40, 3, 3), -1.0)], 1)
    for kept in (newton_polytope, vertices, rescale, reposition):
        assert torch.equal(kept(padded)[:, :6], kept(drawn))
        assert (kept(padded)[:, 6:] == -1).all()


def test_a_game_filtered_by_vertices_holds_no_others() -> None:
    state = hironaka(max_num_points=12, polytope="vertices").reset(60, generator(0, "start"))
    fast = hironaka(max_num_points=12).reset(60, generator(0, "start"))
    assert torch.equal(state["points"], features(vertices(fast["points"])))
    assert (state["points"] >= 0).sum() < (fast["points"] >= 0).sum()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (torch.zeros(2, 6), r"points of shape \(2, 6\)"),
        (torch.zeros(2, 6, 4), r"points of shape \(2, 6, 4\)"),
        (torch.full((2, 6, 3), torch.nan), "point 0 of game 0 is .*; give finite coordinates"),
        (torch.full((2, 6, 3), torch.inf), "point 0 of game 0 is .*; give finite coordinates"),
        (torch.tensor([[[0.0, 2.0, -1.0]] * 6]), "point 0 of game 0 is .*; give finite"),
        (torch.zeros(0, 6, 3), "at least one of each"),
        (torch.zeros(2, 6, 3).long(), "torch.int64 points"),
    ],
)
def test_points_that_cannot_be_played_are_refused(given: Tensor, told: str) -> None:
    game = hironaka()
    assert isinstance(game, Hironaka)
    with pytest.raises(LudusError, match=told):
        game.start(given)
    if tuple(given.shape) != (2, 6, 4):
        for function in (newton_polytope, vertices, rescale, reposition, features):
            with pytest.raises(LudusError, match=told.replace("points of", "")):
                function(given)


def test_one_dimension_no_games_and_axes_that_there_are_not_are_refused() -> None:
    for call in (lambda: host_action_table(1), lambda: newton_polytope(torch.zeros(2, 3, 1))):
        with pytest.raises(
            ConfigError, match="'dimension' is 1; the host must name two coordinates"
        ):
            call()
    with pytest.raises(ConfigError, match="a batch of 0 games was asked for"):
        hironaka().reset(0, generator(0, "start"))
    given = torch.zeros(2, 3, 2)
    with pytest.raises(LudusError, match="an axis is not among the 2 coordinates, 0 to 1"):
        shift(given, torch.ones(2, 2), torch.tensor([0, 2]))
    with pytest.raises(LudusError, match=r"for these points give \(2, 2\) and \(2,\)"):
        shift(given, torch.ones(2, 3), torch.tensor([0, 1]))


def test_a_game_that_is_not_rescaled_is_cut_off_before_its_points_are_infinite() -> None:
    game = Hironaka(dimension=3, max_num_points=20, max_value=20, scale_observation=False)
    state = game.reset(40, torch.Generator().manual_seed(0))
    for turn in range(300):
        state, _ = game.step(state, "host", torch.zeros(40, dtype=torch.int64))
        state, _ = game.step(state, "agent", torch.full((40,), turn % 2))
    assert state["points"].isfinite().all()
    cut_B = game.truncated(state)
    assert cut_B is not None
    assert 0 < int(cut_B.sum()) < 40
    assert torch.equal(game.over(state), cut_B | game.done(state))
    assert torch.equal(cut_B, (state["points"].amax((1, 2)) > 2.0**120))
    after, rewards = game.step(state, "host", torch.ones(40, dtype=torch.int64))
    assert torch.equal(after["coords"][cut_B], state["coords"][cut_B]), "nothing moves there"
    assert not rewards[cut_B].any()
    assert not game.over(game.restart(state, torch.Generator().manual_seed(1)))[cut_B].all()
    scaled = Hironaka(dimension=3, max_num_points=20, max_value=20, scale_observation=True)
    assert scaled.truncated(state) is None
