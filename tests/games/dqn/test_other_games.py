"""fused_dqn trains the host and the agent of any game, not of Hironaka's alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

import ludus
from ludus import StrictConfig, register
from ludus.config import registry
from ludus.core.errors import ConfigError, LudusError
from ludus.games import DQNTrainer, FusedGame, Moves, Step, make_game
from ludus.games.dqn.evaluation import PairEvaluation, metrics_of, scores_of
from ludus.games.game import State, check_games
from ludus.testing.games import check_game
from tests.games.dqn.small import Ran, small_dqn


@register("game", "chase")
class Chase(FusedGame):
    """The host runs after the agent on a ring, and may stand still; the agent may not."""

    class Config(StrictConfig):
        kind: Literal["chase"]
        """A pursuit on a ring."""
        places: int
        """How many places the ring has."""

    roles = ("host", "agent")
    host_wins_by_ending = True

    def __init__(self, *, places: int) -> None:
        self.places = places

    def actions(self, role: str) -> Moves:
        self.check_role(role)
        return Moves(3 if role == "host" else 2)

    def observation_size(self, role: str) -> int:
        self.check_role(role)
        return 1

    def reset(self, games: int, generator: torch.Generator) -> State:
        check_games(games)
        draws = torch.randint(
            1, self.places, (games,), generator=generator, device=generator.device
        )
        return {"apart": draws}

    def observe(self, state: State, role: str) -> Tensor:
        return state["apart"].float().unsqueeze(1) / self.places

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        way = 1 - actions if role == "host" else 2 * actions - 1
        after = {"apart": (state["apart"] + way) % self.places}
        caught = self.done(after).float()
        return Step(after, torch.stack([caught, -caught], 1))

    def done(self, state: State) -> Tensor:
        return state["apart"] == 0


def test_a_game_of_ones_own_has_a_host_and_an_agent_that_learn() -> None:
    section = {"kind": "chase", "places": 9}
    check_game(lambda: make_game(Chase.Config(**section)))
    ran = Ran(small_dqn(game=section, max_rounds=8))
    found = ran.trainer.evaluate_rho(num_samples=50)
    assert list(found) == [
        "host_vs_agent",
        "host_vs_random",
        "host_vs_choose_first",
        "random_vs_agent",
        "choose_first_vs_agent",
    ]
    weights = ran.trainer.weights()
    metrics = ran.trainer.evaluate_weights(weights, episodes=50)
    pair = [metrics["eval/rho/random_vs_agent"], metrics["eval/rho/choose_first_vs_agent"]]
    assert metrics["eval/agent_rho"] == pytest.approx(sum(pair) / 2)


@pytest.fixture
def changed_chase() -> Iterator[Callable[..., Any]]:
    """Return what makes a trainer of another Chase, with these attributes."""

    class Base(Chase):
        class Config(StrictConfig):  # type: ignore[assignment]
            kind: Literal["changed"]
            """Another pursuit."""
            places: int
            """How many places the ring has."""

    def trainer(**attributes: Any) -> DQNTrainer:
        register("game", "changed")(type("Changed", (Base,), attributes))
        return DQNTrainer(small_dqn(game={"kind": "changed", "places": 9}))

    yield trainer
    registry._REGISTERED["game"].pop("changed", None)


@pytest.mark.parametrize(
    ("opponents", "told"),
    [
        ((), r"opponents\('host'\) of Changed gives \(\); give the kinds"),
        (None, r"opponents\('host'\) of Changed gives None; give the kinds"),
        (("spivakovsky",), "names the player 'spivakovsky', which needs .*; name players without"),
        (("nobody",), "no player kind is named 'nobody'"),
    ],
)
def test_judges_that_cannot_judge_are_told_before_a_run_is_begun(
    opponents: Any, told: str, changed_chase: Callable[..., Any], tmp_path: Path
) -> None:
    trainer = changed_chase(opponents=lambda self, role: opponents)
    with pytest.raises(LudusError, match=told):
        trainer.fit(root=str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("roles", [None, property(lambda self: ("host", "agent"))])
def test_a_class_that_does_not_name_its_roles_is_told(
    roles: Any, changed_chase: Callable[..., Any]
) -> None:
    with pytest.raises(ConfigError, match="whose class does not name its roles; write roles ="):
        changed_chase(roles=roles)


def test_a_judge_from_outside_remembers_nothing_of_earlier_evaluations(
    changed_chase: Callable[..., Any],
) -> None:
    class Moody:
        class Config(StrictConfig):
            kind: Literal["moody"]
            """Plays otherwise the more it has played."""

        def __init__(self, config: Config, game: FusedGame, role: str) -> None:
            self.asked = 0

        def act(self, obs_BO: Tensor, legal_BA: Any, generator: torch.Generator) -> Tensor:
            self.asked += 1
            return torch.full((len(obs_BO),), int(self.asked > 3))

    register("player", "moody")(Moody)
    try:
        trainer = changed_chase(opponents=lambda self, role: ("moody",))
        first, second = (trainer.evaluate_rho(30) for _ in range(2))
        trainer.set_logger(ludus.Logger({"backends": []}))
        trainer.prepare(max_steps=None)
        evaluation, players = trainer.evaluation, trainer.players
        rhos = [
            metrics_of(trainer.fused_game, evaluation.play_all(players), ["host"]) for _ in range(2)
        ]
    finally:
        del registry._REGISTERED["player"]["moody"]
    assert first == second
    assert rhos[0] == rhos[1]


@register("game", "two_sided_nim")
class Nim(FusedGame):
    """Take one, two or three; who takes the last one wins, host or agent."""

    class Config(StrictConfig):
        kind: Literal["two_sided_nim"]
        """Nim with one heap."""
        least: int
        """How many there are in a new game, at least; at most there are nine more."""

    roles = ("host", "agent")

    def __init__(self, *, least: int) -> None:
        self.least = least

    def actions(self, role: str) -> Moves:
        self.check_role(role)
        return Moves(3)

    def observation_size(self, role: str) -> int:
        self.check_role(role)
        return 1

    def reset(self, games: int, generator: torch.Generator) -> State:
        check_games(games)
        heaps = torch.randint(10, (games,), generator=generator, device=generator.device)
        return {"left": heaps + self.least}

    def observe(self, state: State, role: str) -> Tensor:
        return state["left"].float().unsqueeze(1)

    def legal(self, obs_BO: Tensor, role: str) -> Tensor:
        return torch.arange(1, 4, device=obs_BO.device) <= obs_BO

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        after = {"left": state["left"] - actions - 1}
        won = self.done(after).float()
        return Step(after, torch.stack([won, -won] if role == "host" else [-won, won], 1))

    def done(self, state: State) -> Tensor:
        return state["left"] <= 0


NIM = {"kind": "two_sided_nim", "least": 12}


class Winner:
    """Leaves a multiple of four, so that it wins whenever it can."""

    def act(self, obs_BO: Tensor, legal_BA: Any, generator: torch.Generator) -> Tensor:
        return ((obs_BO[:, 0].long() % 4) - 1).clamp(min=0)


class Loser:
    """Takes one at a time, so that its games are the longest."""

    def act(self, obs_BO: Tensor, legal_BA: Any, generator: torch.Generator) -> Tensor:
        return torch.zeros(len(obs_BO), dtype=torch.int64)


def nim_scores(agent: Any) -> dict[str, float]:
    config = small_dqn(game=NIM, **{"evaluation.episodes": 300, "evaluation.max_turns": 30})
    game = make_game(config.game)
    played = PairEvaluation(config, game, torch.device("cpu")).play_all(
        {"host": Winner(), "agent": agent}
    )
    return metrics_of(game, played, ["host", "agent"])


@pytest.mark.covers("001-S8")
def test_a_role_of_another_game_is_judged_by_its_own_rewards_not_by_how_soon_it_ended() -> None:
    strong, weak = nim_scores(Winner()), nim_scores(Loser())
    config = small_dqn(game=NIM)
    by_role = {score.name: score for score in scores_of(config, make_game(config.game))}
    metric, mode = by_role["agent"].metric, by_role["agent"].direction
    assert (metric, mode) == ("eval/agent_return", "max")
    assert strong[metric] > weak[metric] + 0.5
    assert strong["eval/host_return"] == weak["eval/host_return"] > 0.8
    # By the rewards, in [-1, 1]: what the host wins the agent loses.
    pair = [strong[f"eval/{role}_return/host_vs_agent"] for role in ("host", "agent")]
    assert sum(pair) == pytest.approx(0)


def test_a_run_of_another_game_keeps_the_best_by_returns_and_speaks_of_no_rho() -> None:
    ran = Ran(small_dqn(game=NIM, max_rounds=8))
    assert [score.metric for score in ran.trainer.judge.scores] == [
        "eval/host_return",
        "eval/agent_return",
    ]
    logged = {name for record in ran.records for name in record.scalars}
    assert not [name for name in logged if "rho" in name]
    assert set(ran.trainer.evaluate(num_samples=20)) <= logged
    with pytest.raises(ConfigError, match=r"an end of Nim need not be its win; evaluate\(\) gives"):
        ran.trainer.evaluate_rho(20)


def test_starts_that_are_all_over_are_told_without_keys_of_hironakas(tmp_path: Path) -> None:
    over = DQNTrainer(small_dqn(game={"kind": "two_sided_nim", "least": -20}))
    with pytest.raises(ConfigError) as told:
        over.fit(root=str(tmp_path))
    assert "or let reset return states that are not over" in str(told.value)
    assert "max_num_points" not in str(told.value)
