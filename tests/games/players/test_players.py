"""What the scripted players of moves do, and which roles they play."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.core.errors import ConfigError
from ludus.games.game import Bounds
from ludus.games.rules.cartpole import CartPole
from ludus.games.rules.connect_four import ConnectFour
from ludus.seeds import generator
from tests.games.sections import hironaka, player_of

LEGAL = torch.tensor([[False, True, True], [True, False, True], [True, True, False]])


@pytest.mark.covers("001-S9")
def test_the_first_and_the_last_legal_move_are_taken() -> None:
    game, obs = hironaka(), torch.zeros(3, 21)
    for kind, moves in (("choose_first", [1, 0, 0]), ("choose_last", [2, 2, 1])):
        player = player_of(game, "agent", kind=kind)
        assert player.act(obs, LEGAL, generator(0, "moves")).tolist() == moves


@pytest.mark.parametrize(
    ("section", "seat", "other"),
    [
        ({"kind": "all_coordinates"}, "host", "agent"),
        ({"kind": "zeillinger", "lexicographic": False}, "host", "agent"),
        ({"kind": "spivakovsky", "variant": "full"}, "host", "agent"),
        ({"kind": "morin", "weights": [1.0, 2.0, 3.0]}, "agent", "host"),
    ],
)
def test_a_player_of_hironakas_game_is_refused_in_another_seat(
    section: dict[str, Any], seat: str, other: str
) -> None:
    player_of(hironaka(), seat, **section)
    told = f"the player '{section['kind']}' plays the {seat} of Hironaka's game, not the"
    with pytest.raises(ConfigError, match=f"{told} {other} of Hironaka"):
        player_of(hironaka(), other, **section)
    with pytest.raises(ConfigError, match=f"{told} first of ConnectFour"):
        player_of(ConnectFour(), "first", **section)


def test_a_player_of_moves_is_refused_where_actions_are_numbers() -> None:
    class Dial(CartPole):
        moves = Bounds((-2.0,), (2.0,))

    for kind in ("choose_first", "choose_last"):
        with pytest.raises(ConfigError, match=f"the player '{kind}' chooses among moves"):
            player_of(Dial(max_steps=5), "player", kind=kind)
