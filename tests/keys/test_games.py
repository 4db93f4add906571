"""What a change of each key of a game or of a scripted player does."""

from __future__ import annotations

import torch

from ludus.games.game import Moves
from ludus.games.hironaka.host_actions import decode_host_action
from ludus.games.rules.hironaka import Hironaka
from ludus.seeds import generator
from tests.games.sections import game_of, hironaka, player_of
from tests.keys.table import changes


@changes("game hironaka", "kind", "dimension")
def test_points_have_so_many_coordinates(kind: str) -> None:
    for dimension, host_moves in ((2, 1), (4, 11)):
        game = hironaka(dimension=dimension)
        assert game.reset(3, generator(0, "start"))["points"].shape == (3, 6, dimension)
        assert game.actions("agent") == Moves(dimension)
        assert game.actions("host") == Moves(host_moves)


@changes("game hironaka", "max_num_points")
def test_a_game_starts_with_so_many_points(kind: str) -> None:
    for count in (5, 40):
        assert hironaka(max_num_points=count).observation_size("host") == 3 * count


@changes("game hironaka", "max_value")
def test_coordinates_reach_up_to_the_greatest_value(kind: str) -> None:
    for value in (1, 30):
        points = hironaka(max_value=value).reset(4000, generator(0, "start"))["points"]
        assert points.max() == value
        assert points[points[..., 0] >= 0].min() == 0


@changes("game hironaka", "scale_observation")
def test_points_are_divided_by_the_greatest_coordinate(kind: str) -> None:
    for scaled in (False, True):
        game = hironaka(scale_observation=scaled)
        state = game.reset(50, generator(0, "start"))
        assert (game.observe(state, "host").amax(1) <= 1).all() == scaled
        assert (state["points"].amax((1, 2)) > 1).any()


@changes("game hironaka", "polytope")
def test_points_that_are_no_vertices_stay_or_go(kind: str) -> None:
    start = torch.tensor([[[4.0, 0.0], [2.0, 2.0], [0.0, 4.0]]])
    for polytope, count in (("domination", 3), ("vertices", 2)):
        game = hironaka(dimension=2, max_num_points=3, polytope=polytope)
        assert isinstance(game, Hironaka)
        assert (game.start(start)["points"][..., 0] >= 0).sum() == count


@changes("game hironaka", "starts")
def test_games_start_from_the_points_that_are_given(kind: str) -> None:
    starts = [[[4, 0], [1, 1], [0, 4]], [[2, 0], [0, 3]]]
    game = hironaka(dimension=2, starts=starts)
    points = game.reset(100, generator(0, "start"))["points"]
    found = {tuple(tuple(p) for p in rows.tolist() if p[0] >= 0) for rows in points}
    assert found == {((4, 0), (1, 1), (0, 4)), ((2, 0), (0, 3))}
    over = {"points": points.new_full(points.shape, -1.0), "coords": points[:, 0] * 0}
    assert set(map(len, found)) == {
        int((rows[:, 0] >= 0).sum()) for rows in game.restart(over, generator(1, "start"))["points"]
    }
    assert len(hironaka(dimension=2).reset(100, generator(0, "start"))["points"].unique(dim=0)) > 50


@changes("game cartpole, game pendulum, game acrobot", "kind", "max_steps")
def test_a_game_is_truncated_after_so_many_steps(kind: str) -> None:
    for count in (2, 5):
        game = game_of(kind=kind.split()[1], max_steps=count)
        player, draws = player_of(game, "player", kind="random"), generator(0, "moves")
        state = game.reset(1, generator(0, "start"))
        steps = 0
        while not game.over(state):
            action = player.act(game.observe(state, "player"), None, draws)
            state, _ = game.step(state, "player", action)
            steps += 1
        assert steps == count


@changes("game connect_four, game tic_tac_toe", "kind")
def test_the_game_of_that_name_is_played(kind: str) -> None:
    moves = {"connect_four": 7, "tic_tac_toe": 9}
    name = kind.split()[1]
    assert game_of(kind=name).actions("first") == Moves(moves[name])


@changes("player choose_first, player choose_last, player all_coordinates", "kind")
def test_a_scripted_host_always_plays_its_one_move(kind: str) -> None:
    move = {"choose_first": 0, "choose_last": 3, "all_coordinates": 3}
    name = kind.split()[1]
    player = player_of(hironaka(), "host", kind=name)
    assert player.act(torch.zeros(2, 18), None, generator(0, "moves")).tolist() == [move[name]] * 2


START = torch.tensor([[[9.0, 0, 3, 0], [9, 0, 0, 3], [3, 3, 3, 0], [0, 6, 3, 0]]])


def host_names(**section: object) -> list[int]:
    """Return the coordinates that a host names in one game of four dimensions."""
    game = hironaka(dimension=4, max_num_points=4)
    assert isinstance(game, Hironaka)
    host = player_of(game, "host", **section)
    action = host.act(game.start(START)["points"].flatten(1), None, generator(0, "moves"))
    return decode_host_action(int(action), 4)


@changes("player zeillinger", "kind", "lexicographic")
def test_the_first_coordinates_or_the_first_pair_are_taken(kind: str) -> None:
    assert host_names(kind="zeillinger", lexicographic=False) == [2, 3]
    assert host_names(kind="zeillinger", lexicographic=True) == [0, 1]


@changes("player spivakovsky", "kind", "variant")
def test_the_rule_is_followed_in_full_or_in_part(kind: str) -> None:
    assert host_names(kind="spivakovsky", variant="full") == [0, 1, 2]
    assert host_names(kind="spivakovsky", variant="weak") == [0, 1]
    found = [host_names(kind="spivakovsky", variant=variant) for variant in ("weak", "random")]
    assert len(found[0]) == len(found[1]) == 2


@changes("player morin", "kind", "weights")
def test_the_lightest_coordinate_is_picked(kind: str) -> None:
    legal = torch.tensor([[True, True, True]])
    for weights, pick in (([3.0, 1.0, 2.0], 1), ([1.0, 2.0, 3.0], 0)):
        agent = player_of(hironaka(), "agent", kind="morin", weights=weights)
        assert int(agent.act(torch.zeros(1, 21), legal, generator(0, "moves"))) == pick


@changes("player random", "kind")
def test_a_random_player_plays_every_legal_move(kind: str) -> None:
    player = player_of(hironaka(), "host", kind="random")
    moves = player.act(torch.zeros(400, 18), None, generator(0, "moves"))
    assert set(moves.tolist()) == {0, 1, 2, 3}
