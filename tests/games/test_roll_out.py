"""A roll-out gives what a role experienced, and nothing that did not happen."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from ludus.core.errors import ConfigError, LudusError
from ludus.games.choose import best
from ludus.games.game import FusedGame, Moves, State, Step
from ludus.games.roll_out import Experiences, play_turns, roll_out
from ludus.seeds import generator
from tests.games.sections import hironaka, player_of


class Noted:
    """Plays at random and notes every game that it is asked about."""

    def __init__(self, game: FusedGame, role: str) -> None:
        self.player = player_of(game, role, kind="random")
        self.asked: list[Tensor] = []
        self.answers: list[Tensor] = []

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, draws: torch.Generator) -> Tensor:
        self.asked.append(obs_BO)
        self.answers.append(self.player.act(obs_BO, legal_BA, draws))
        return self.answers[-1]


def noted(game: FusedGame) -> dict[str, Noted]:
    return {role: Noted(game, role) for role in game.roles}


def played(role: str, *, turns: int = 5, games: int = 40, **options: Any) -> Any:
    game = hironaka()
    players = noted(game)
    draws = generator(3, role)
    found, keep = play_turns(
        game, players, role, game.reset(games, draws), turns=turns, generator=draws,
        exploration_rate=options.pop("rate", 0.0), **options,
    )  # fmt: skip
    return game, players, found, keep


@pytest.mark.covers("001-M5")
def test_experiences_come_as_obs_actions_rewards_dones_next_obs() -> None:
    assert Experiences._fields == ("obs", "actions", "rewards", "dones", "next_obs")
    game = hironaka()
    obs, actions, rewards, dones, next_obs = roll_out(
        game, noted(game), "agent", games=30, turns=4, generator=generator(0, "play")
    )
    assert obs.shape == next_obs.shape == (len(actions), game.observation_size("agent"))
    assert (actions.dtype, rewards.dtype, dones.dtype) == (torch.int32, torch.float32, torch.bool)
    assert set(game.named(obs, "agent")) == {"points", "coords"}


@pytest.mark.covers("001-S5")
def test_only_games_that_were_not_over_already_are_kept() -> None:
    game, _, found, keep = played("host", turns=8)
    still = game.done({"points": game.named(found.obs, "host"), "coords": found.obs})
    assert torch.equal(keep, ~still)
    assert 0 < int(keep.sum()) < len(keep)
    # A finished game ends once, and nobody gains by what comes after.
    assert not found.rewards[~keep].any()
    dones = found.dones.view(8, 40) & keep.view(8, 40)
    assert (dones.sum(0) <= 1).all()


def test_the_filtered_rows_are_those_that_the_mask_keeps() -> None:
    game, players = hironaka(), noted(hironaka())
    draws = generator(3, "agent")
    filtered = roll_out(game, players, "agent", games=40, turns=5, generator=draws)
    _, _, found, keep = played("agent")
    for one, two in zip(filtered, found, strict=True):
        assert torch.equal(one, two[keep])


@pytest.mark.covers("001-S5", "001-D13")
def test_the_end_is_worth_1_to_the_host_and_takes_1_from_the_agent() -> None:
    for role, worth in (("host", 1.0), ("agent", -1.0)):
        _, _, found, keep = played(role)
        assert found.dones[keep].any()
        assert torch.equal(found.rewards[keep], worth * found.dones[keep].float())


@pytest.mark.covers("001-D3")
def test_the_agent_sees_next_the_coordinates_that_the_host_really_names() -> None:
    game, players, found, keep = played("agent", turns=5)
    hosts = players["host"].answers
    assert len(hosts) == 6, "one move a turn and one after the last: nobody is asked twice"
    coords = game.named(found.next_obs, "agent")["coords"].view(5, 40, 3)
    table = game._table(torch.device("cpu"))
    goes_on = ~found.dones.view(5, 40) & keep.view(5, 40)
    for turn in range(5):
        named = table[hosts[turn + 1]].float()
        assert torch.equal(coords[turn][goes_on[turn]], named[goes_on[turn]])
    # What is seen next is what is seen at the next turn.
    assert torch.equal(found.next_obs.view(5, 40, -1)[:-1], found.obs.view(5, 40, -1)[1:])


def test_only_the_sampled_role_explores() -> None:
    for role, other in (("host", "agent"), ("agent", "host")):
        played_moves: dict[str, list[Tensor]] = {"host": [], "agent": []}

        class Watched(type(hironaka())):  # type: ignore[misc]
            def step(self, state: State, who: str, actions: Tensor) -> Step:
                played_moves[who].append(actions)  # noqa: B023
                return super().step(state, who, actions)

        game = Watched(dimension=3, max_num_points=6, max_value=9, scale_observation=False)
        players, draws = noted(game), generator(0, "play")
        play_turns(
            game, players, role, game.reset(200, draws), turns=2, generator=draws, exploration_rate=1.0
        )  # fmt: skip
        same = {
            who: all(map(torch.equal, played_moves[who], players[who].answers))
            for who in game.roles
        }
        assert same == {role: False, other: True}


class Values:
    """Values the first legal move most, so that it plays no other unless it is made to explore."""

    def values(self, obs_BO: Tensor) -> Tensor:
        moves = 4 if obs_BO.shape[1] == 18 else 3
        return torch.arange(moves, 0, -1).float().expand(len(obs_BO), -1)

    def act(self, obs_BO: Tensor, legal_BA: Tensor | None, generator: torch.Generator) -> Tensor:
        return best(self.values(obs_BO), legal_BA)


def test_a_network_that_is_met_plays_its_best_moves_however_much_the_role_explores() -> None:
    for role, other in (("host", "agent"), ("agent", "host")):
        best_moves: dict[str, list[bool]] = {"host": [], "agent": []}

        class Watched(type(hironaka())):  # type: ignore[misc]
            def step(self, state: State, who: str, actions: Tensor) -> Step:
                obs_BO = self.observe(state, who)
                wanted_B = best(Values().values(obs_BO), self.legal(obs_BO, who))
                going_B = ~self.over(state)
                best_moves[who].append(torch.equal(actions[going_B], wanted_B[going_B]))  # noqa: B023
                return super().step(state, who, actions)

        game = Watched(dimension=3, max_num_points=6, max_value=9, scale_observation=False)
        draws = generator(0, "play")
        play_turns(
            game, {"host": Values(), "agent": Values()}, role, game.reset(100, draws), turns=3,
            generator=draws, exploration_rate=1.0,
        )  # fmt: skip
        assert all(best_moves[other])
        assert not any(best_moves[role])


class Named:
    """A player of a script that names one move, legal or not."""

    def __init__(self, move: int) -> None:
        self.move = move

    def act(self, obs: Tensor, legal: Tensor | None, generator: torch.Generator) -> Tensor:
        return torch.full((len(obs),), self.move)


class Valued(Named):
    """The same player, which says what its moves are worth."""

    def values(self, obs: Tensor) -> Tensor:
        return one_hot(torch.full((len(obs),), self.move), 3).float()


class Masked(FusedGame):
    """Never ends; of three moves the first and the last are legal in even games, the second in odd ones."""

    roles = ("only",)

    def actions(self, role: str) -> Moves:
        return Moves(3)

    def observation_size(self, role: str) -> int:
        return 3

    def reset(self, games: int, draws: torch.Generator) -> State:
        legal = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
        return {"legal": legal.repeat(games // 2, 1)}

    def observe(self, state: State, role: str) -> Tensor:
        return state["legal"]

    def legal(self, obs: Tensor, role: str) -> Tensor:
        return obs > 0

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        return Step(state, torch.zeros(len(actions), 1))

    def done(self, state: State) -> Tensor:
        return torch.zeros(len(state["legal"]), dtype=torch.bool)


def moves(player: Named, rate: float | Tensor) -> Tensor:
    """Return what is played in 4,000 games, of which the odd ones have one legal move."""
    game, draws = Masked(), generator(0, "explore")
    found, _ = play_turns(
        game, {"only": player}, "only", game.reset(4000, draws), turns=1, generator=draws,
        exploration_rate=rate,
    )  # fmt: skip
    return found.actions


@pytest.mark.covers("001-D2")
@pytest.mark.parametrize("player", [Named(0), Valued(0)])
def test_exploration_draws_legal_moves_alone_and_all_of_them(player: Named) -> None:
    played = moves(player, 1.0)
    assert (played[1::2] == 1).all()
    assert 850 < int((played[::2] == 2).sum()) < 1150
    assert (played[::2] != 1).all()


@pytest.mark.parametrize("player", [Named(2), Valued(2)])
@pytest.mark.parametrize("rate", [0.0, 0.25, torch.tensor(0.25)])
def test_so_large_a_share_of_moves_is_explored(player: Named, rate: float | Tensor) -> None:
    played = moves(player, rate)[::2]
    # Half of what is drawn is the move that would have been played.
    assert abs(float((played != 2).float().mean()) - float(rate) / 2) < 0.02


def test_a_player_whose_moves_are_looked_at_is_asked_for_moves_not_for_values() -> None:
    class Named0(Named):
        def values(self, obs: Tensor) -> str:
            return "of its own"

    game = Masked()
    with pytest.raises(LudusError, match="played 0 in game 1, which is illegal"):
        roll_out(
            game, {"only": Named0(0)}, "only", games=4, turns=1, generator=generator(0, "explore")
        )


class Countdown(FusedGame):
    """The first role takes from a number, the second adds a reward of its own; truncated at the end."""

    roles = ("first", "second")

    def actions(self, role: str) -> Moves:
        return Moves(2)

    def observation_size(self, role: str) -> int:
        return 1

    def reset(self, games: int, draws: torch.Generator) -> State:
        return {"left": torch.arange(1, games + 1, device=draws.device)}

    def observe(self, state: State, role: str) -> Tensor:
        return state["left"][:, None].float()

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        games = len(actions)
        if role == "first":
            return Step({"left": state["left"] - 1}, torch.tensor([[1.0, 0.0]]).repeat(games, 1))
        return Step(state, torch.tensor([[0.25, 2.0]]).repeat(games, 1))

    def done(self, state: State) -> Tensor:
        return state["left"] <= 0

    def truncated(self, state: State) -> Tensor:
        return state["left"] == 5


def test_rewards_between_two_turns_are_summed_and_a_cut_game_is_no_end() -> None:
    game = Countdown()
    first = roll_out(game, noted(game), "first", games=7, turns=3, generator=generator(0, "x"))
    # Game 5 is cut from the start; 6 and 7 are cut when five are left, after one turn and two.
    assert first.obs[:, 0].tolist() == [1, 2, 3, 4, 6, 7, 1, 2, 3, 6, 1, 2]
    ended = first.next_obs[:, 0] <= 0
    assert torch.equal(first.dones, ended)
    cut = first.next_obs[:, 0] == 5
    assert cut.any()
    assert not first.dones[cut].any()
    over = ended | cut
    assert torch.equal(first.rewards, torch.where(over, 1.0, 1.25))


def test_a_game_that_is_cut_off_before_the_other_has_moved_says_nothing_of_what_comes_next() -> (
    None
):
    class Cut(type(hironaka())):  # type: ignore[misc]
        """Is cut off after the second move of the agent."""

        def reset(self, games: int, draws: torch.Generator) -> State:
            return {**super().reset(games, draws), "moves": torch.zeros(games)}

        def play(self, state: State, role: str, actions: Tensor) -> Step:
            after, rewards = super().play(state, role, actions)
            return Step({**after, "moves": state["moves"] + (role == "agent")}, rewards)

        def step(self, state: State, role: str, actions: Tensor) -> Step:
            return FusedGame.step(self, state, role, actions)

        def truncated(self, state: State) -> Tensor:
            return state["moves"] >= 2

    game = Cut(dimension=3, max_num_points=6, max_value=9, scale_observation=False)
    for role in game.roles:
        found = roll_out(game, noted(game), role, games=40, turns=3, generator=generator(0, "x"))
        legal = game.legal(found.next_obs, role)
        assert legal is None or bool((legal.any(1) | found.dones).all())
        assert len(found.obs) > 35, (
            "the moves of the first turn are kept, and those that ended a game"
        )


@pytest.mark.covers("001-S5")
def test_a_reward_function_of_ones_own_is_what_counts() -> None:
    seen: list[Any] = []

    def reward(role: str, obs: Any, next_obs: Any, next_done: Tensor) -> Tensor:
        seen.append((role, obs, next_obs))
        return 5.0 + next_done

    game = hironaka()
    found = roll_out(
        game, noted(game), "agent", games=20, turns=3, generator=generator(0, "x"), reward_func=reward
    )  # fmt: skip
    assert torch.equal(found.rewards, 5.0 + found.dones.float())
    ((role, obs, next_obs),) = seen
    assert role == "agent"
    assert obs["points"].shape == next_obs["points"].shape == (60, 6, 3)


def test_what_cannot_be_played_is_told_in_a_sentence() -> None:
    game, draws = hironaka(), generator(0, "x")
    players = noted(game)
    with pytest.raises(ConfigError, match="a batch of 0 games"):
        roll_out(game, players, "host", games=0, turns=1, generator=draws)
    with pytest.raises(ConfigError, match="a rollout of 0 turns"):
        roll_out(game, players, "host", games=1, turns=0, generator=draws)
    with pytest.raises(ConfigError, match="has no role 'ghost'"):
        roll_out(game, players, "ghost", games=1, turns=1, generator=draws)
    with pytest.raises(ConfigError, match="nobody plays the agent"):
        roll_out(game, {"host": players["host"]}, "host", games=1, turns=1, generator=draws)
    with pytest.raises(LudusError, match=r"gave \(3,\) for the host; return a tensor of \(4,\)"):
        roll_out(
            game, players, "host", games=4, turns=1, generator=draws,
            reward_func=lambda *given: torch.zeros(3),
        )  # fmt: skip


def test_a_player_that_gives_illegal_moves_is_refused_by_game_role_and_index() -> None:
    class Stubborn:
        def act(self, obs_BO: Tensor, legal_BA: Any, draws: torch.Generator) -> Tensor:
            return torch.full((len(obs_BO),), 7)

    game = hironaka()
    players = {**noted(game), "agent": Stubborn()}
    with pytest.raises(LudusError, match="the agent of Hironaka played 7 in game 0"):
        roll_out(game, players, "host", games=4, turns=1, generator=generator(0, "x"))
