"""Playoffs: who is quicker against whom, in the same games."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ludus.core.errors import ConfigError, LudusError
from ludus.games import playoffs
from ludus.games.player import make_player
from ludus.games.players._table import Random
from ludus.games.rules.cartpole import CartPole
from ludus.games.rules.tic_tac_toe import TicTacToe
from ludus.seeds import generator
from tests.games.sections import hironaka

FIRST = {"kind": "choose_first"}
HOSTS = {
    "all": {"kind": "all_coordinates"},
    "zeillinger": {"kind": "zeillinger", "lexicographic": False},
}


@pytest.mark.covers("001-S13")
def test_game_lengths_of_every_host_and_agent_are_a_table() -> None:
    game = hironaka(dimension=2, max_num_points=3, max_value=4)
    table = playoffs(
        game, HOSTS, {"first": FIRST, "random": {"kind": "random"}}, games=40, max_steps=9
    )
    going_B = ~game.over(game.reset(40, generator(0, "playoffs")))
    assert table.lengths.shape == (2, 2, int(going_B.sum()))
    assert not going_B.all()
    for host in HOSTS:
        for agent in ("first", "random"):
            place = table.hosts.index(host), table.agents.index(agent)
            lengths, ended = table.lengths[place], table.is_finished[place]
            assert lengths.min() >= 1
            assert (lengths[~ended] == 9).all()
            assert table.mean_length(host, agent) == pytest.approx(float(lengths.float().mean()))
            assert table.rhos[host, agent] == pytest.approx(float(ended.sum() / lengths.sum()))
    # In dimension 2 the host has one move, so both hosts play the same games against the same draws.
    assert torch.equal(table.lengths[0], table.lengths[1])
    top, first, second = str(table).splitlines()
    assert top.split() == ["host", "\\", "agent", "first", "random"]
    assert first.split()[:2] == ["all", f"{table.mean_length('all', 'first'):.2f}"]
    assert second.startswith("zeillinger")


def test_every_pair_meets_from_the_same_starts_and_a_seed_gives_other_games() -> None:
    seen: list[Tensor] = []

    class Watching:
        def __init__(self) -> None:
            self.inner = make_player(Random.Config(kind="random"), game, "host")

        def begin(self, new_B: Tensor | None) -> None:
            self.is_new = True

        def act(
            self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator
        ) -> Tensor:
            if self.is_new:
                seen.append(obs_BO)
            self.is_new = False
            return self.inner.act(obs_BO, legal_BA, generator)

    game = hironaka()
    one, other = Watching(), Watching()
    agents = {"first": FIRST, "random": {"kind": "random"}}
    table = playoffs(game, {"one": one, "other": other}, agents, games=30, max_steps=5)
    assert len(seen) == 4
    assert all(torch.equal(obs, seen[0]) for obs in seen)
    assert torch.equal(table.lengths[0], table.lengths[1])
    playoffs(game, {"one": one}, {"first": FIRST}, games=30, max_steps=5, seed=1)
    assert seen[4].shape != seen[0].shape or not torch.equal(seen[4], seen[0])


def test_the_moves_of_a_pair_are_drawn_alike_whatever_the_players_are_called() -> None:
    agents = {name: {"kind": "random"} for name in ("one", "other")}
    table = playoffs(hironaka(), HOSTS, agents, games=30, max_steps=9)
    assert torch.equal(table.lengths[:, 0], table.lengths[:, 1])


def test_an_illegal_move_of_ones_own_player_is_refused_by_name() -> None:
    class Odd:
        def act(
            self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator
        ) -> Tensor:
            assert legal_BA is not None
            return (~legal_BA).int().argmax(1)

    # With the first two of three coordinates named, the third is illegal.
    pair = {"pair": {"kind": "zeillinger", "lexicographic": False}}
    with pytest.raises(LudusError, match="the agent of Hironaka played"):
        playoffs(hironaka(), pair, {"odd": Odd()}, games=30, max_steps=9)


def test_other_games_of_two_have_playoffs_too() -> None:
    table = playoffs(TicTacToe(), {"a": FIRST}, {"b": FIRST}, games=3, max_steps=9)
    # 0 1 2 3 4 5 6: the first has 2, 4 and 6 in its fourth move.
    assert table.lengths.tolist() == [[[4, 4, 4]]]
    assert str(table).startswith("first \\ second")


def test_what_cannot_be_played_off_is_refused() -> None:
    game = hironaka()
    with pytest.raises(ConfigError, match="CartPole has the roles player; playoffs are for two"):
        playoffs(CartPole(max_steps=9), {"a": FIRST}, {"b": FIRST}, games=3, max_steps=9)
    with pytest.raises(ConfigError, match="with 0 hosts, 1 agents and max_steps 9; give 1 or more"):
        playoffs(game, {}, {"b": FIRST}, games=3, max_steps=9)
    with pytest.raises(ConfigError, match="a batch of 0 games"):
        playoffs(game, HOSTS, {"b": FIRST}, games=0, max_steps=9)
    with pytest.raises(LudusError, match="the agent is a Linear; give a player"):
        playoffs(game, HOSTS, {"b": torch.nn.Linear(1, 1)}, games=3, max_steps=9)  # type: ignore[dict-item]
    ended = hironaka(dimension=2, max_num_points=2, max_value=1)
    over = [ended.over(ended.reset(1, generator(seed, "playoffs"))).item() for seed in range(9)]
    with pytest.raises(LudusError, match="all 1 games are over before the first step"):
        playoffs(ended, HOSTS, {"b": FIRST}, games=1, max_steps=9, seed=over.index(True))
