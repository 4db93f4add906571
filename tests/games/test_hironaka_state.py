"""The state of Hironaka's game: what its moves keep, whatever executes them."""

from __future__ import annotations

import pytest
import torch

from ludus.games.hironaka.polyhedra import features, newton_polytope, rescale, shift
from ludus.games.rules.hironaka import Hironaka


def game(**changes: int | bool) -> Hironaka:
    known = {"dimension": 3, "max_num_points": 20, "max_value": 20, "scale_observation": False}
    return Hironaka(**{**known, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("scale", [False, True])
def test_the_points_of_a_state_are_sorted_and_what_a_role_sees_follows_them(scale: bool) -> None:
    own = game(scale_observation=scale)
    state = own.reset(50, torch.Generator().manual_seed(1))
    host_B = torch.arange(50) % 4
    state = own.step(state, "host", host_B).state
    axis_B = state["coords"].argmax(1)
    after = own.step(state, "agent", axis_B).state
    for each in (state, after):
        assert torch.equal(each["points"], features(each["points"]))
        seen = rescale(each["points"]) if scale else each["points"]
        assert torch.equal(own.observe(each, "host"), seen.flatten(1))
    moved = newton_polytope(shift(state["points"], state["coords"], axis_B))
    wanted = features(moved)
    assert torch.equal(
        after["points"], torch.where(own.done(state)[:, None, None], state["points"], wanted)
    )


def test_new_games_take_the_place_of_those_that_are_over_alone() -> None:
    own = game(max_value=2)
    state = own.reset(60, torch.Generator().manual_seed(1))
    state["coords"].fill_(1.0)
    over = own.done(state)
    assert over.any()
    assert not over.all()
    anew = own.restart(state, torch.Generator().manual_seed(2))
    fresh = own.reset(60, torch.Generator().manual_seed(2))
    assert torch.equal(anew["points"][over], fresh["points"][over])
    assert torch.equal(anew["coords"][over], fresh["coords"][over])
    assert torch.equal(anew["points"][~over], state["points"][~over])
    assert torch.equal(anew["coords"][~over], state["coords"][~over])


def test_what_was_named_in_a_finished_game_stays() -> None:
    own = game(max_value=2)
    state = own.reset(60, torch.Generator().manual_seed(1))
    state["coords"].fill_(1.0)
    named = own.step(state, "host", torch.zeros(60, dtype=torch.int64)).state["coords"]
    over = own.done(state)
    assert torch.equal(named[over], state["coords"][over])
    assert torch.equal(named[~over], torch.tensor([[1.0, 1.0, 0.0]]).expand(int((~over).sum()), 3))
