"""What the scripted players of moves do, and which roles they play."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from ludus.core.errors import ConfigError
from ludus.games.game import Bounds
from ludus.games.player import ask
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


SCRIPTED: list[tuple[str, dict[str, Any]]] = [
    ("host", {"kind": "random"}),
    ("agent", {"kind": "random"}),
    ("host", {"kind": "choose_first"}),
    ("agent", {"kind": "choose_last"}),
    ("host", {"kind": "all_coordinates"}),
    ("host", {"kind": "zeillinger", "lexicographic": True}),
    ("host", {"kind": "spivakovsky", "variant": "full"}),
    ("host", {"kind": "spivakovsky", "variant": "weak"}),
    ("host", {"kind": "spivakovsky", "variant": "random"}),
    ("agent", {"kind": "morin", "weights": [1.0, 2.0, 3.0]}),
]


@pytest.mark.parametrize(("role", "section"), SCRIPTED)
def test_a_scripted_player_is_legal_in_every_game_and_reads_no_number_on_the_host(
    role: str, section: dict[str, Any]
) -> None:
    game = hironaka(max_num_points=4, max_value=3)
    draws = generator(0, "moves")
    player = player_of(game, role, **section)
    state = game.reset(80, draws)
    assert game.over(state).any()
    for _ in range(3):
        host = player if role == "host" else player_of(game, "host", kind="random")
        state, _ = game.step(state, "host", ask(host, game, state, "host", draws))
        agent = player if role == "agent" else player_of(game, "agent", kind="random")
        actions = ask(agent, game, state, "agent", draws)
        seen = state
        state, _ = game.step(state, "agent", actions)
    obs = game.observe(seen, role)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        legal = game.legal(fake.from_tensor(obs), role)
        assert player.act(fake.from_tensor(obs), legal, draws).shape == (80,)
