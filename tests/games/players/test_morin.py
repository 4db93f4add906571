"""Morin's agent, by hand."""

from __future__ import annotations

import pytest
import torch

from ludus.core.errors import ConfigError
from ludus.games.matches import play_games
from ludus.games.player import begin
from ludus.games.players.morin import Morin
from ludus.games.roll_out import roll_out
from ludus.seeds import generator
from tests.games.sections import hironaka, player_of


def morin(*weights: float) -> Morin:
    player = player_of(hironaka(), "agent", kind="morin", weights=list(weights))
    assert isinstance(player, Morin)
    return player


def picks(player: Morin, *named: list[int]) -> list[int]:
    """Return the picks of one game, one for each set of coordinates that the host names."""
    legal = [torch.tensor([[axis in coords for axis in range(3)]]) for coords in named]
    return [int(player.act(torch.zeros(1, 21), one, generator(0, "moves"))) for one in legal]


@pytest.mark.covers("001-S9")
def test_the_lightest_is_picked_and_the_others_named_weigh_nothing_then() -> None:
    # 0 is the lightest of 0 and 1, after which 1 weighs nothing, and so it is picked before 2 and 0.
    assert picks(morin(1.0, 2.0, 3.0), [0, 1], [1, 2], [0, 1]) == [0, 1, 1]
    # 1 is picked, so 2 weighs nothing; 0, which was not named, weighs what it did.
    assert picks(morin(1.0, 2.0, 3.0), [1, 2], [0, 2], [0, 1]) == [1, 2, 0]


def test_of_equally_light_ones_any_is_picked() -> None:
    legal = torch.tensor([[True, False, True]]).expand(100, -1)
    drawn = morin(1.0, 0.0, 1.0).act(torch.zeros(100, 21), legal, generator(0, "moves"))
    assert set(drawn.tolist()) == {0, 2}


def test_a_new_game_begins_with_the_first_weights() -> None:
    player = morin(1.0, 2.0, 3.0)
    assert picks(player, [0, 1, 2], [0, 1]) == [0, 1]
    begin(player)
    assert picks(player, [0, 1]) == [0]
    two = torch.tensor([[True, True, False]] * 2)
    for new in (torch.tensor([False, True]), torch.tensor([True, False])):
        begin(player)
        player.act(torch.zeros(2, 21), two, generator(0, "moves"))
        begin(player, new)
        again = player.act(torch.zeros(2, 21), two, generator(0, "moves"))
        assert again[new].tolist() == [0]
        assert again[~new].tolist() == [1]


def test_what_it_remembers_can_be_saved() -> None:
    player, other = morin(1.0, 2.0, 3.0), morin(1.0, 2.0, 3.0)
    picks(player, [0, 1])
    other.load_state_dict(player.state_dict())
    assert picks(other, [0, 1]) == [1]


def test_another_number_of_weights_is_refused() -> None:
    with pytest.raises(ConfigError, match="'morin' has 2 weights, and the game 3 coordinates"):
        morin(1.0, 2.0)


def test_new_games_of_a_rollout_and_of_an_evaluation_are_begun_with_the_first_weights() -> None:
    game, player = hironaka(max_num_points=20), morin(1.0, 2.0, 3.0)
    players = {"host": player_of(game, "host", kind="choose_first"), "agent": player}
    first = roll_out(game, players, "agent", games=8, turns=1, generator=generator(0, "moves"))
    again = roll_out(game, players, "agent", games=8, turns=1, generator=generator(0, "moves"))
    assert set(first.actions.tolist()) == set(again.actions.tolist()) == {0}
    state = game.reset(8, generator(0, "start"))
    played = play_games(game, players, state, max_steps=1, generator=generator(0, "moves"))
    assert played.counts["agent"].tolist() == [8, 0, 0]
