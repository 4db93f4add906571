"""What the commands do with a run of a host and an agent."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.process.messages import pack
from ludus.seeds import GlobalRandom
from tests.command_line import Ludus, in_process
from tests.games.dqn.small import prepared, small_dqn

NETS = {"host.net_arch": [8, 6], "agent.net_arch": [8]}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the directory of a small run."""
    place = tmp_path_factory.mktemp("place")
    return str(ludus.build_trainer(small_dqn(**NETS)).fit(root=str(place), name="run").run_dir)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)


def test_both_best_models_are_evaluated_over_games_by_which_nothing_was_chosen(
    run: str, call: Ludus
) -> None:
    for model in ("best", "best-agent", "last"):
        told = call("eval", run, "--model", model, "--episodes", "9", "--json").json
        assert told["metrics"]["eval/games"] == 9
        assert 0 <= told["metrics"]["eval/rho/host_vs_random"] <= 1
    other = call("eval", run, "--model", "last", "--episodes", "9", "--seed", "5", "--json").json
    assert other["metrics"] != told["metrics"]


def starts_of(work: Callable[[], object], trainer: Any) -> set[tuple[float, ...]]:
    """Return the first points of all games that are played meanwhile."""
    seen: set[tuple[float, ...]] = set()
    game, reset = trainer.fused_game, trainer.fused_game.reset

    def noted(games: int, draws: torch.Generator) -> Any:
        state = reset(games, draws)
        seen.update(map(tuple, state["points"].flatten(1).tolist()))
        return state

    game.reset = noted
    try:
        work()
    finally:
        del game.reset
    return seen


def test_an_evaluation_afterwards_is_over_other_games_than_those_that_chose_or_trained() -> None:
    many = {"evaluation.episodes": 50, "game.max_num_points": 12, "game.max_value": 20}
    trainer = prepared(small_dqn(**many))
    weights = trainer.weights()
    choosing = starts_of(lambda: trainer._evaluate(trainer.run), trainer)
    again = starts_of(lambda: trainer.evaluate_rho(), trainer)
    training = starts_of(lambda: trainer._warm_up(trainer.run), trainer)
    held_out = starts_of(lambda: trainer.evaluate_weights(weights), trainer)
    assert choosing == again, "the best are chosen by the same games every time"
    assert len(held_out) == len(choosing) == 50
    assert not held_out & choosing
    assert not held_out & training
    other = starts_of(lambda: trainer.evaluate_weights(weights, seed=7), trainer)
    assert not other & (held_out | choosing | training)


@pytest.mark.parametrize("episodes", [1, 7])
def test_an_odd_number_of_games_is_played_in_full(run: str, call: Ludus, episodes: int) -> None:
    words = "eval", run, "--model", "last", "--episodes", str(episodes), "--seed", "1"
    told = call(*words, "--json").json["metrics"]
    assert told["eval/games"] == episodes
    trainer = prepared(small_dqn(**{"evaluation.episodes": 7}))
    assert len(starts_of(lambda: trainer._evaluate(trainer.run), trainer)) == 7
    assert int(trainer.count_actions("host", num_samples=3).sum()) >= 1


def test_an_evaluation_of_no_games_or_of_none_that_goes_on_is_told(run: str, call: Ludus) -> None:
    none = call("eval", run, "--episodes", "0")
    assert (none.code, none.out) == (2, "")
    assert "--episodes" in none.err
    trainer = prepared(small_dqn(**{"game.max_num_points": 2, "game.dimension": 2}))
    told = []
    for seed in range(12):
        try:
            trainer.evaluate_weights(trainer.weights(), episodes=1, seed=seed)
        except ConfigError as refused:
            told.append(str(refused))
    assert "all 1 games of an evaluation have ended before they begin; raise" in told[0]


def test_a_game_is_printed_move_by_move(run: str, call: Ludus) -> None:
    told = call("play", run).out
    for words in (
        "host: the network",
        "move 1: host plays",
        "the host names",
        "move 2: agent plays",
    ):
        assert words in told
    assert call("play", run).out == told
    assert call("play", run, "--episode", "1").out != told


def test_the_policies_of_both_roles_are_exported_for_numpy(
    run: str, call: Ludus, tmp_path: Path
) -> None:
    call("export", run, "--out", str(tmp_path / "policy"))
    assert {path.name for path in (tmp_path / "policy").iterdir()} == {"host", "agent"}
    trainer = prepared(small_dqn(**NETS))
    trainer.export(trainer.weights(), tmp_path / "own")
    for role in ("host", "agent"):
        policy = ludus.NumpyPolicy.load(tmp_path / "own" / role)
        obs = trainer._roll_out(role, 20, 2).obs
        legal = trainer.fused_game.legal(obs, role)
        moves = policy(obs.numpy(), None if legal is None else legal.numpy())
        wanted = trainer.learners[role].act(obs, legal, torch.Generator())
        assert moves.tolist() == wanted.tolist()


def test_batch_norm_is_exported_as_it_plays_and_residual_blocks_are_refused(tmp_path: Path) -> None:
    trainer = prepared(small_dqn())
    norms = [layer for layer in trainer.host_net if isinstance(layer, torch.nn.BatchNorm1d)]
    assert norms
    draws = torch.Generator().manual_seed(0)
    for norm in norms:
        norm.running_mean.uniform_(-0.5, 0.5, generator=draws)
        norm.running_var.uniform_(0.001, 0.1, generator=draws)
    trainer.export(trainer.weights(), tmp_path / "own")
    obs = torch.randn(200, trainer.fused_game.observation_size("host"), generator=draws)
    moves = ludus.NumpyPolicy.load(tmp_path / "own" / "host")(obs.numpy())
    wanted = trainer.learners["host"].act(obs, None, torch.Generator())
    assert moves.tolist() == wanted.tolist()
    assert len(set(moves.tolist())) > 1
    trainer = prepared(small_dqn(**{"host.net_arch": ["r8"]}))
    with pytest.raises(LudusError, match="the network has residual blocks"):
        trainer.export(trainer.weights(), tmp_path / "residual")
    norm = torch.nn.BatchNorm1d(4, track_running_stats=False)
    own = torch.nn.Sequential(torch.nn.Linear(18, 4), norm)
    trainer = prepared(host_net=own)
    with pytest.raises(LudusError, match="batch norm without running statistics"):
        trainer.export(trainer.weights(), tmp_path / "batches")


def test_the_report_is_written_and_the_keys_are_explained(
    run: str, call: Ludus, tmp_path: Path
) -> None:
    assert "eval/host_rho" in Path(call("report", run).out.strip()).read_text()
    (tmp_path / "hironaka.yaml").write_text(call("new", "fused_dqn").out)
    told = call("explain", str(tmp_path / "hironaka.yaml"), "host.tau").out
    assert "How far the target network moves" in told
    plan = call("plan", str(tmp_path / "hironaka.yaml")).out
    assert plan.index("sync_target") < plan.index("fit") < plan.index("collect")


def test_the_keys_of_a_role_that_is_null_are_explained(call: Ludus, tmp_path: Path) -> None:
    path = str(tmp_path / "hironaka.yaml")
    Path(path).write_text(call("new", "fused_dqn").out)
    given = ("agent=null", "opponent={kind: morin, weights: [1.0, 1.0, 1.0]}")
    assert "Who plays the role that is not trained" in call("explain", path, *given, "opponent").out
    told = call("explain", path, *given).out
    # A net_arch may hold others; its keys are told once.
    assert told.count("agent.net_arch.repeat") == 1


def test_while_a_game_is_told_gradients_modes_and_generators_are_as_they_were() -> None:
    trainer = prepared()
    trainer.set_training(True)
    before = torch.get_rng_state()
    lines = iter(trainer.narrate(trainer.weights(), 0))
    assert next(lines).startswith("host: the network")
    assert torch.is_grad_enabled()
    assert trainer.host_net.training
    assert torch.equal(torch.get_rng_state(), before)
    assert list(lines)[-1].startswith("\nthe game ")


def test_kept_weights_are_evaluated_told_and_exported_and_the_trainer_keeps_its_own(
    tmp_path: Path,
) -> None:
    trainer, other = prepared(), prepared()
    for learner in other.learners.values():
        learner.step()
        learner.learner.flat.vectors[0].neg_()
    trainer.set_training(True)
    before = state_of(trainer)
    weights = trainer.weights_of({role: one.state_dict() for role, one in other.learners.items()})
    assert pack(dict(weights)) == pack(other.weights())
    assert trainer.evaluate_weights(weights) == other.evaluate_weights(weights)
    told = list(trainer.narrate(weights, 0))
    assert told == list(other.narrate(weights, 0))
    assert told != list(trainer.narrate(trainer.weights(), 0))
    for one, name in ((trainer, "trainer"), (other, "other")):
        one.export(weights, tmp_path / name)
    for role in ("host", "agent"):
        files = [tmp_path / name / role / "weights.safetensors" for name in ("trainer", "other")]
        assert files[0].read_bytes() == files[1].read_bytes()
    assert state_of(trainer) == before
    assert trainer.host_net.training


def state_of(trainer: Any) -> object:
    """Return all that a checkpoint of this trainer would hold, and where the global generators stand."""
    parts = {name: part.state_dict() for name, part in trainer.parts().items()}
    return pack({"parts": parts, "global": GlobalRandom().state_dict()})


def test_weights_of_which_one_role_does_not_fit_change_neither(tmp_path: Path) -> None:
    trainer = prepared()
    before, weights = state_of(trainer), {k: t + 1 for k, t in trainer.weights().items()}
    weights["agent.0.weight"] = torch.zeros(3, 3)
    for work in (
        lambda: trainer.load_weights(weights),
        lambda: trainer.evaluate_weights(weights),
        lambda: trainer.export(weights, tmp_path / "policy"),
    ):
        with pytest.raises(CheckpointError, match=r"agent/0\.weight"):
            work()
        assert state_of(trainer) == before


@pytest.mark.parametrize("command", ["eval", "play", "export"])
@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ("max_num_points: 6", "max_num_points: 8", "game.max_num_points 6 (now 8)"),
        ("max_value: 9", "max_value: 30", "game.max_value 9 (now 30)"),
        ("net_arch: [8, 6]", "net_arch: [6, 6]", "host.net_arch [8, 6] (now [6, 6])"),
    ],
)
def test_a_config_that_was_edited_since_the_training_is_refused(
    run: str, call: Ludus, command: str, before: str, after: str, told: str
) -> None:
    path = Path(run) / "config.yaml"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    try:
        message = call(command, run, "--model", "last").refusal()
    finally:
        path.write_text(text)
    assert f"was trained with {told}, so its weights are not those of its config.yaml" in message


def test_a_length_that_was_edited_does_not_keep_a_run_from_being_evaluated(
    run: str, call: Ludus
) -> None:
    path = Path(run) / "config.yaml"
    text = path.read_text()
    path.write_text(text.replace("max_rounds: 6", "max_rounds: 60"))
    try:
        assert path.read_text() != text
        assert "eval/games" in call("eval", run, "--episodes", "9").out
    finally:
        path.write_text(text)
