"""Every caller asks players in one way: an illegal action is a sentence, never a traceback."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.core.errors import ConfigError, Interrupted, LudusError
from ludus.games.dqn.players import Mixed
from ludus.games.game import FusedGame
from ludus.games.matches import moments, play_games, transcript
from ludus.games.player import Player, ask
from ludus.games.roll_out import roll_out
from ludus.seeds import generator
from tests.games.sections import game_of, hironaka, player_of

GAMES = 12
Loop = Callable[[FusedGame, dict[str, Player]], Any]


def by_roll_out(game: FusedGame, players: dict[str, Player]) -> Any:
    return roll_out(game, players, "host", games=GAMES, turns=9, generator=generator(0, "x"))


def by_play_games(game: FusedGame, players: dict[str, Player]) -> Any:
    draws = generator(0, "x")
    state = game.reset(GAMES, draws)
    return play_games(game, players, state, max_steps=9, generator=draws, checked=game.roles)


def by_moments(game: FusedGame, players: dict[str, Player]) -> Any:
    draws = generator(0, "x")
    return list(moments(game, players, game.reset(GAMES, draws), draws, max_turns=9))


LOOPS = [by_roll_out, by_play_games, by_moments]
each_loop = pytest.mark.parametrize("loop", LOOPS)


class Says:
    """Plays what a function makes of the first legal moves."""

    def __init__(self, answer: Callable[[Tensor], Any] = lambda first_B: first_B) -> None:
        self.answer = answer
        self.begun: list[object] = []

    def begin(self, new_B: Tensor | None) -> None:
        self.begun.append(new_B)

    def act(self, obs_BO: Tensor, legal_BA: Any, draws: torch.Generator) -> Any:
        is_over_B = ~legal_BA.any(1)
        return self.answer(torch.where(is_over_B, -1, legal_BA.int().argmax(1)))


def with_agent(player: Player, game: FusedGame) -> dict[str, Player]:
    return {"host": player_of(game, "host", kind="random"), "agent": player}


@each_loop
@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (lambda first: first.tolist(), "gave a list; give a tensor of (12,)"),
        (lambda first: None, "gave a NoneType; give a tensor"),
        (lambda first: first[:3], "gave actions of shape (3,); give (12,)"),
        (lambda first: first[:, None], "gave actions of shape (12, 1); give (12,)"),
        (lambda first: first[0], "gave actions of shape (); give (12,)"),
        (lambda first: first.float(), "gave torch.float32 actions; give whole numbers"),
        (lambda first: first * torch.nan, "gave torch.float32 actions; give whole numbers"),
        (lambda first: first > 0, "gave torch.bool actions; give whole numbers"),
        (lambda first: first * 1j, "gave torch.complex64 actions; give whole numbers"),
        (lambda first: first * 0 - 1, "played -1 in game 0, which is illegal there"),
        (lambda first: first * 0 + 3, "played 3 in game 0, which is illegal there"),
        (lambda first: first * 0 + 2**40, "played 1099511627776 in game 0, which is illegal"),
    ],
)
def test_what_is_no_legal_move_is_told_with_game_role_and_index(
    loop: Loop, answer: Callable[[Tensor], Any], problem: str
) -> None:
    game = hironaka()
    with pytest.raises(LudusError) as refused:
        loop(game, with_agent(Says(answer), game))
    assert str(refused.value).startswith(f"the agent of Hironaka {problem}")
    assert "\n" not in str(refused.value)


@each_loop
def test_a_move_that_was_not_named_is_refused_in_the_game_where_it_was_not(loop: Loop) -> None:
    game = hironaka()

    class Other(Says):
        def act(self, obs_BO: Tensor, legal_BA: Any, draws: torch.Generator) -> Any:
            return legal_BA.int().argmin(1)  # one that was not named, where there is one

    with pytest.raises(
        LudusError, match=r"the agent of Hironaka played [012] in game \d+, which is"
    ):
        loop(game, with_agent(Other(), game))


@each_loop
@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.int8])
def test_what_is_said_of_games_that_are_over_does_not_count(loop: Loop, kind: torch.dtype) -> None:
    game = hironaka()
    found = loop(game, with_agent(Says(lambda first: first.to(kind)), game))
    usual = loop(game, with_agent(Says(lambda first: first.clamp(min=0)), game))
    if loop is by_moments:
        assert any(bool((moment.was_over & ~moment.was_over.all()).any()) for moment in found)
        found, usual = found[-1].after["points"], usual[-1].after["points"]
        assert torch.equal(found, usual)
    elif loop is by_play_games:
        assert torch.equal(found.steps, usual.steps)
        assert torch.equal(found.counts["agent"], usual.counts["agent"])
        assert int(found.counts["agent"].sum()) == int(found.counts["host"].sum())
    else:
        for one, two in zip(found, usual, strict=True):
            assert torch.equal(one, two)


@each_loop
def test_every_loop_tells_those_who_remember_that_games_begin(loop: Loop) -> None:
    game = hironaka()
    player = Says()
    for _ in range(2):
        loop(game, with_agent(player, game))
    assert player.begun == [None, None]


def test_a_game_that_is_told_begins_for_its_players() -> None:
    game, player = hironaka(), Says()
    names = {"host": "random", "agent": "says"}
    list(transcript(game, with_agent(player, game), names, generator(0, "x"), max_turns=3))
    assert player.begun == [None]


@pytest.mark.parametrize("answer", [lambda first: first.tolist(), lambda first: first[:, None]])
def test_one_of_several_players_is_refused_as_one_alone_is(answer: Callable[[Tensor], Any]) -> None:
    game = hironaka()
    scripted = player_of(game, "agent", kind="choose_first")
    for others, last in (([(scripted, 0.5)], Says(answer)), ([(Says(answer), 0.5)], scripted)):
        with pytest.raises(LudusError, match="the agent of Hironaka gave a"):
            by_roll_out(game, with_agent(Mixed(game, "agent", others, last), game))


def test_numbers_between_bounds_are_finite_floats_of_the_games_own_type() -> None:
    game = game_of(kind="pendulum", max_steps=20)
    draws = generator(0, "x")
    state = game.reset(3, draws)

    class Pushes:
        def __init__(self, torques: Any) -> None:
            self.torques = torques

        def act(self, obs_BO: Tensor, legal_BA: Any, draws: torch.Generator) -> Any:
            return self.torques

    found = ask(Pushes(torch.ones(3, 1, dtype=torch.float64)), game, state, "player", draws)
    assert found.dtype == torch.float32
    for torques, problem in (
        (torch.full((3, 1), torch.nan), r"played \[nan\] in game 0"),
        (torch.zeros(3, 1, dtype=torch.int64), "gave torch.int64 actions; give floats"),
        (torch.zeros(3), r"gave actions of shape \(3,\); give \(3, 1\)"),
    ):
        with pytest.raises(LudusError, match=problem):
            ask(Pushes(torques), game, state, "player", draws)


def test_games_are_left_between_two_turns_when_the_run_is_to_pause() -> None:
    game, asked = hironaka(), list[bool]()

    def third_time() -> bool:
        asked.append(True)
        return len(asked) == 3

    draws = generator(0, "x")
    players = with_agent(Says(), game)
    found = moments(
        game, players, game.reset(50, draws), draws, max_turns=9, is_interrupted=third_time
    )
    seen = []
    with pytest.raises(Interrupted):
        seen.extend(found)
    assert len(asked) == 3


def test_a_role_whose_actions_are_numbers_has_no_moves_to_choose_from() -> None:
    game = game_of(kind="pendulum", max_steps=20)
    for work in (
        lambda: player_of(game, "player", kind="choose_first"),
        lambda: roll_out(
            game, {"player": player_of(game, "player", kind="random")}, "player", games=2, turns=1,
            generator=generator(0, "x"),
        ),
    ):  # fmt: skip
        with pytest.raises(
            ConfigError, match="chooses among moves, and the player of Pendulum gives"
        ):
            work()
