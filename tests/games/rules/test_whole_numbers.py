"""Hironaka's game against its rules in whole numbers, whatever a role is shown."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from ludus.games.hironaka.host_actions import host_action_table
from ludus.games.hironaka.polyhedra import rescale
from ludus.games.player import seated
from ludus.games.rules.hironaka import Hironaka
from ludus.seeds import generator

Points = frozenset[tuple[int, ...]]


def filtered(points: Points) -> Points:
    """Return the points that no other lies below, by the definition."""
    return frozenset(
        p for p in points
        if not any(q != p and all(a <= b for a, b in zip(q, p, strict=True)) for q in points)
    )  # fmt: skip


def moved(points: Points, named: list[int], axis: int) -> Points:
    """Return the points after a move, by the definition; without one, and after the end, they stay."""
    if len(points) < 2 or not named[axis]:
        return points
    return filtered(
        frozenset(
            (*p[:axis], sum(p[k] for k, is_named in enumerate(named) if is_named), *p[axis + 1 :])
            for p in points
        )
    )


def left(points_ND: Tensor) -> Points:
    return frozenset(tuple(int(x) for x in row) for row in points_ND.tolist() if row[0] >= 0)


def settled_64(points_BND: Tensor, coords_D: Tensor, axis: int) -> Tensor:
    """Return (B, 2) which of two points are left after a move, in whole numbers of 64 bits."""
    points_BND = points_BND.clone()
    points_BND[..., axis] = (points_BND * coords_D).sum(-1)
    one_BD, other_BD = points_BND.unbind(1)
    is_below_B, is_above_B = (one_BD <= other_BD).all(1), (other_BD <= one_BD).all(1)
    # Of equal points the first stays.
    return torch.stack([~(is_above_B & ~is_below_B), ~is_below_B], 1)


@pytest.mark.parametrize("scale", [False, True])
def test_every_small_start_of_two_points_has_the_right_points_after_a_move(scale: bool) -> None:
    values = torch.arange(7)
    grid_PD = torch.cartesian_prod(values, values, values)
    one_B, other_B = torch.triu_indices(len(grid_PD), len(grid_PD), 1)
    starts_BND = torch.stack([grid_PD[one_B], grid_PD[other_B]], 1)
    game = Hironaka(dimension=3, max_num_points=2, max_value=6, scale_observation=scale)
    begun = game.start(starts_BND.float())
    # Only where both points span the polyhedron is there a game.
    going_B = ~game.done(begun)
    starts_BND, state = starts_BND[going_B], {name: x[going_B] for name, x in begun.items()}
    count = len(starts_BND)
    assert count > 20_000
    for action, coords_D in enumerate(host_action_table(3)):
        named = game.step(state, "host", torch.full((count,), action)).state
        for axis in coords_D.nonzero().flatten().tolist():
            after = game.step(named, "agent", torch.full((count,), axis)).state
            num_left_B = settled_64(starts_BND, coords_D, axis).sum(1)
            assert torch.equal(game.done(after), num_left_B == 1)


@pytest.mark.covers("001-S1")
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize(("dimension", "points"), [(2, 12), (3, 20), (5, 9)])
def test_whole_games_are_those_of_whole_numbers(dimension: int, points: int, scale: bool) -> None:
    game = Hironaka(
        dimension=dimension, max_num_points=points, max_value=20, scale_observation=scale
    )
    draws, games = generator(dimension, "moves"), 60
    state = game.reset(games, draws)
    wanted = [filtered(left(rows)) for rows in state["points"]]
    table, ends = host_action_table(dimension).tolist(), 0
    for _ in range(20):
        host_B = torch.randint(len(table), (games,), generator=draws)
        axis_B = torch.randint(dimension, (games,), generator=draws)
        state = game.step(state, "host", host_B).state
        state = game.step(state, "agent", axis_B).state
        for number, (host, axis) in enumerate(zip(host_B.tolist(), axis_B.tolist(), strict=True)):
            wanted[number] = moved(wanted[number], table[host], axis)
        assert [left(rows) for rows in state["points"]] == wanted
        ends = int(game.done(state).sum())
    assert ends > 0


def test_what_is_shown_does_not_change_how_a_game_ends() -> None:
    """When sums were rounded, 5% of these games never ended."""
    ends = {}
    for scale in (False, True):
        game = Hironaka(dimension=3, max_num_points=20, max_value=20, scale_observation=scale)
        host = seated({"kind": "zeillinger", "lexicographic": False}, game, "host")
        draws = generator(0, "start")
        state, steps = game.reset(200, draws), []
        for _ in range(40):
            state = game.step(
                state, "host", host.act(game.observe(state, "host"), None, draws)
            ).state
            state = game.step(state, "agent", state["coords"].argmax(1)).state
            steps.append(game.done(state))
        ends[scale] = torch.stack(steps)
    assert torch.equal(ends[True], ends[False])
    assert ends[True][-1].float().mean() > 0.9


def test_a_role_is_shown_points_divided_by_the_greatest_and_the_state_is_not() -> None:
    game = Hironaka(dimension=2, max_num_points=3, max_value=9, scale_observation=True)
    state = game.start(torch.tensor([[[7.0, 0.0], [1.0, 1.0], [0.0, 5.0]]]))
    assert left(state["points"][0]) == {(7, 0), (1, 1), (0, 5)}
    assert torch.equal(game.observe(state, "host").view(1, 3, 2), rescale(state["points"]))
    named = game.step(state, "host", torch.tensor([0])).state
    assert game.observe(named, "agent")[0, -2:].tolist() == [1, 1]
    assert torch.equal(game.observe(named, "agent")[:, :-2], game.observe(state, "host"))


def test_large_points_are_divided_by_a_power_of_two_and_nothing_is_rounded() -> None:
    game = Hironaka(dimension=3, max_num_points=3, max_value=9, scale_observation=True)
    small = torch.tensor([[[7.0, 0.0, 3.0], [1.0, 1.0, 5.0], [0.0, 5.0, 1.0]]])
    large = small * 2.0**119
    one, other = game.start(small), game.start(large)
    for host, axis in itertools.product(range(4), range(3)):
        after = []
        for state in (one, other):
            named = game.step(state, "host", torch.tensor([host])).state
            after.append(game.step(named, "agent", torch.tensor([axis])).state)
        assert torch.equal(game.observe(after[0], "host"), game.observe(after[1], "host"))
        assert torch.equal(game.done(after[0]), game.done(after[1]))
        assert float(after[1]["points"].max()) <= 2.0**120
    long = game.start(large)
    for turn in range(500):
        long = game.step(long, "host", torch.tensor([turn % 4])).state
        long = game.step(long, "agent", torch.tensor([turn % 3])).state
        assert long["points"].isfinite().all()
