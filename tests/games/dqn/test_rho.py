"""rho counts what a host has won, by hand-worked games."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.core.runtime import InMemoryRuntime
from ludus.games import DQNTrainer
from ludus.games.game import FusedGame, Moves, State, Step
from ludus.games.matches import Played, play_games, rho
from ludus.seeds import derive, generator
from tests.games.dqn.small import Ran, prepared, small_dqn
from tests.games.sections import hironaka, player_of


class Lengths(FusedGame):
    """Game i ends after i steps of host and agent, whatever they do."""

    roles = ("host", "agent")

    def actions(self, role: str) -> Moves:
        return Moves(2)

    def observation_size(self, role: str) -> int:
        return 1

    def reset(self, games: int, draws: torch.Generator) -> State:
        return {"left": torch.arange(games)}

    def observe(self, state: State, role: str) -> Tensor:
        return state["left"][:, None].float()

    def play(self, state: State, role: str, actions: Tensor) -> Step:
        left = state["left"] - 1 if role == "agent" else state["left"]
        return Step({"left": left}, torch.zeros(len(actions), 2))

    def done(self, state: State) -> Tensor:
        return state["left"] <= 0


class Always:
    """Plays one move."""

    def __init__(self, move: int) -> None:
        self.move = move

    def act(self, obs_BO: Tensor, legal_BA: Any, draws: torch.Generator) -> Tensor:
        return torch.full((len(obs_BO),), self.move)


def played(lengths: list[int], max_steps: int) -> Played:
    players = {"host": Always(1), "agent": Always(0)}
    state = {"left": torch.tensor(lengths)}
    draws = generator(0, "x")
    return play_games(Lengths(), players, state, max_steps=max_steps, generator=draws)


@pytest.mark.covers("001-S8")
def test_rho_is_finished_games_over_steps_without_those_that_had_ended() -> None:
    # One had ended; three end in steps 1, 2 and 4; one is left after five.
    found = played([0, 1, 2, 4, 9], max_steps=5)
    assert found.steps.tolist() == [0, 1, 2, 4, 5]
    assert found.is_finished.tolist() == [True, True, True, True, False]
    assert rho(found) == pytest.approx(3 / (1 + 2 + 4 + 5))


@pytest.mark.covers("001-D6")
def test_a_host_that_never_wins_has_a_rho_of_0() -> None:
    assert rho(played([8, 9], max_steps=3)) == 0.0


@pytest.mark.covers("001-D6")
def test_where_all_games_had_ended_there_is_no_rho_and_that_is_told() -> None:
    with pytest.raises(LudusError, match="all 2 games had ended before the first step"):
        rho(played([0, 0], max_steps=3))


def test_only_moves_of_games_that_go_on_are_counted() -> None:
    counts = played([0, 1, 2], max_steps=5).counts
    assert counts["host"].tolist() == [0, 3]
    assert counts["agent"].tolist() == [3, 0]


def test_games_are_played_as_one_by_one() -> None:
    game = hironaka()
    players = {role: player_of(game, role, kind="choose_first") for role in game.roles}
    starts = game.reset(30, generator(0, "starts"))

    def of(state: State) -> Played:
        return play_games(game, players, state, max_steps=9, generator=generator(0, "x"))

    together = of(starts)
    for index in range(30):
        alone = of({name: value[index : index + 1] for name, value in starts.items()})
        assert int(alone.steps) == int(together.steps[index])
        assert bool(alone.is_finished) == bool(together.is_finished[index])


def test_a_game_that_was_cut_off_costs_all_steps_and_is_not_won() -> None:
    class Cut(Lengths):
        def truncated(self, state: State) -> Tensor:
            return state["left"] == 2

    game = Cut()
    state = {"left": torch.tensor([1, 4])}
    hosts = {role: player_of(game, role, kind="random") for role in game.roles}
    played = play_games(game, hosts, state, max_steps=9, generator=generator(0, "moves"))
    assert played.is_finished.tolist() == [True, False]
    assert played.steps.tolist() == [1, 9]


@pytest.mark.covers("001-S8")
def test_five_pairs_are_measured_by_the_trainer() -> None:
    trainer = prepared()
    rhos = trainer.evaluate_rho(num_samples=40, max_steps=5)
    assert list(rhos) == [
        "host_vs_agent",
        "host_vs_random",
        "host_vs_choose_first",
        "random_vs_agent",
        "all_coordinates_vs_agent",
    ]
    assert len(rhos) == 5
    assert rhos == trainer.evaluate_rho(num_samples=40, max_steps=5), "the same games every time"
    # The pair of two players that do not learn stays what it is.
    host = player_of(trainer.fused_game, "host", kind="all_coordinates")
    state, draws = trainer.evaluation.starts("eval", games=40)
    seats = {"host": host, "agent": trainer.learners["agent"]}
    again = play_games(trainer.fused_game, seats, state, max_steps=5, generator=draws)
    assert rhos["all_coordinates_vs_agent"] == rho(again)
    with pytest.raises(ConfigError, match="max_steps=0; use 1 or more"):
        trainer.evaluate_rho(max_steps=0)


@pytest.mark.covers("001-S8")
def test_actions_are_counted_for_a_role_and_a_pair() -> None:
    trainer = prepared()
    hosts = trainer.count_actions("host", "all_coordinates_vs_agent", 30)
    assert hosts[:3].tolist() == [0, 0, 0]
    assert hosts[3] > 0
    assert trainer.count_actions("agent").shape == (3,)
    with pytest.raises(ConfigError, match="no pair is named 'agent_vs_host'"):
        trainer.count_actions("host", "agent_vs_host")


def test_each_role_is_judged_by_its_own_mean_and_direction_and_keeps_its_own_best() -> None:
    ran = Ran(small_dqn(evaluate_every_rounds=1))
    score_states = ran.trainer.judge.score_states
    hosts = ran.curve("eval/host_rho")
    assert hosts == pytest.approx(
        [
            (one + two) / 2
            for one, two in zip(
                ran.curve("eval/rho/host_vs_random"),
                ran.curve("eval/rho/host_vs_choose_first"),
                strict=True,
            )
        ]
    )
    assert score_states["host"].best is not None
    assert score_states["agent"].best is not None
    assert score_states["host"].best["score"] == max(hosts)
    assert score_states["agent"].best["score"] == min(ran.curve("eval/agent_rho"))
    for best in (score_states["host"].best, score_states["agent"].best):
        names = ran.kept[best["model"]]
        assert {name.split(".")[0] for name in names} == {"host", "agent"}


def test_an_evaluation_disturbs_nothing() -> None:
    quiet = Ran(small_dqn(evaluate_every_rounds=0))
    watched = Ran(small_dqn(evaluate_every_rounds=1))
    for name, weight in quiet.trainer.weights().items():
        assert torch.equal(weight, watched.trainer.weights()[name]), name


class Draws(nn.Module):
    """A network whose values are noisy, in eval mode too."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, obs_BO: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = self.layer(obs_BO)
        return values + 0.1 * torch.rand_like(values)


def test_an_evaluation_draws_for_no_one_from_the_generator_of_training() -> None:
    weights = []
    for every in (0, 1):
        torch.manual_seed(0)
        nets = {"host_net": Draws(18, 4), "agent_net": Draws(21, 3)}
        config = small_dqn(engine="eager", evaluate_every_rounds=every)
        weights.append(Ran(config, **nets).trainer.weights())
    for name, weight in weights[0].items():
        assert torch.equal(weight, weights[1][name]), name


def test_what_a_network_draws_in_an_evaluation_is_not_what_its_starts_were_drawn_from() -> None:
    drawn: list[torch.Tensor] = []

    class Listens(Draws):
        def forward(self, obs_BO: torch.Tensor) -> torch.Tensor:
            drawn.append(torch.rand(5))
            values: torch.Tensor = self.layer(obs_BO)
            return values

    trainer = prepared(host_net=Listens(18, 4))
    drawn.clear()
    trainer.evaluate_rho()
    starts = torch.Generator().manual_seed(derive(trainer.config.seed, "eval"))
    assert not torch.equal(drawn[0], torch.rand(5, generator=starts))


def test_a_role_that_a_player_plays_has_no_best_network_and_keeps_no_run_going() -> None:
    # So small a rate that the host's rho stays what it is.
    changed = {"evaluate_every_rounds": 1, "host.optimizer.learning_rate": 1e-12}
    trainer = DQNTrainer(small_dqn(**changed, **{"evaluation.patience": 2, "max_rounds": 30}))
    trainer.replace_nets(agent_net=player_of(trainer.fused_game, "agent", kind="choose_last"))
    trainer.set_logger(ludus.Logger({"backends": []}))
    result = trainer.fit(runtime=InMemoryRuntime)
    score_states = trainer.judge.score_states
    assert score_states["host"].best is not None
    assert score_states["agent"].best is None, "its network did not play"
    assert result.counters["round"] == 3, "only the host's patience is waited for"


def test_a_best_record_and_a_kept_model_say_how_many_moves_were_remembered_by_then() -> None:
    kept: dict[str, Any] = {}

    class Notes(DQNTrainer):
        def before_evaluate(self, run: Any) -> None:
            total = sum(int(one.replay.total_pushed) for one in self.learners.values())
            self.run.keep_model = lambda name, weights, about: kept.update({name: about})
            kept["moves"] = total

    trainer = Notes(small_dqn(log_every_rounds=0, keep_every_rounds=2))
    trainer.set_logger(ludus.Logger({"backends": []}))
    saved: list[int] = []

    class Saves:
        def after_save(self, run: Any) -> None:
            saved.append(run.counters["game_steps"])

    trainer.add(Saves())
    trainer.fit(runtime=InMemoryRuntime)
    best = trainer.judge.score_states["host"].best
    assert best is not None
    assert best["counters"]["round"] in (4, 6)
    assert best["counters"]["game_steps"] <= kept["moves"]
    assert best["counters"]["game_steps"] > saved[0] > 100
    assert saved == sorted(set(saved)), "more at every save, though nothing was recorded"
