"""What a user does with a trained agent: lengthen its run, evaluate, film, export."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ludus
from ludus.cli.exporting import export_run
from ludus.cli.tasks import play_run, render_plan
from ludus.core.errors import ConfigError
from ludus.nn.export.numpy_policy import NumpyPolicy
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from tests.command_line import in_process
from tests.rl.small import small


def trained(kind: str, root: Path) -> tuple[ludus.Trainer, str]:
    trainer = ludus.build_trainer(small(kind))
    return trainer, str(trainer.fit(root=str(root), name=kind).run_dir)


@pytest.mark.covers("000-D3")
@pytest.mark.parametrize(
    ("kind", "key", "longer"),
    [("ppo", "max_env_steps", 240), ("dqn", "steps.max_opt_steps", 40)],
)
def test_a_run_that_ended_can_be_made_longer(
    kind, key, longer, tmp_path, monkeypatch, capsys
) -> None:
    _, run = trained(kind, tmp_path)
    call = in_process(monkeypatch, capsys)
    assert f"as in {key}=" in call("resume", run, "--json").err
    counters = call("resume", run, f"{key}={longer}", "--json").json["counters"]
    assert counters["env_steps" if kind == "ppo" else "opt_steps"] >= longer


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"evaluation.target": 1.0}, "eval/return_mean reached"),
        ({"evaluation.patience": 1, "evaluation.min_delta": 1e6}, "has not improved for 1"),
    ],
)
def test_a_run_that_stopped_says_why_it_does_not_go_on_and_changes_nothing(
    changes: dict[str, Any],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    result = ludus.build_trainer(small("dqn", **changes)).fit(root=str(tmp_path), name="run")
    assert result.status == "stopped"

    def files() -> dict[str, bytes]:
        found = (path for path in sorted(tmp_path.rglob("*")) if path.is_file())
        return {str(path): path.read_bytes() for path in found if path.name != "LOCK"}

    before = files()
    call = in_process(monkeypatch, capsys)
    refusal = call("resume", str(result.run_dir), "steps.max_opt_steps=40").refusal()
    assert words in refusal
    assert f"start a new run from its weights (--from {result.run_dir}:last)" in refusal
    assert files() == before
    # Without a greater length it is told as before, and is exact as before.
    told = call("resume", str(result.run_dir), "--json")
    remedy = (
        "change evaluation.target to continue, or" if "target" in str(changes) else "to train on,"
    )
    assert f"this run was stopped; {remedy} start a new one from its weights" in told.err
    assert told.json["exact"] == "expected"


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_an_exported_policy_acts_as_the_best_one_kept(kind: str, tmp_path: Path) -> None:
    trainer, run = trained(kind, tmp_path)
    policy = NumpyPolicy.load(export_run(run, None))
    trainer.agent.load_weights(trainer.run.recall_model(trainer.best()["model"]))
    obs = np.random.default_rng(0).normal(size=(5, *trainer.env.spec.obs_shape)).astype(np.float32)
    assert np.allclose(policy(obs), trainer.agent.act_greedy(obs, None), atol=1e-5)


def episodes_played(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the list that the seed of every reset of a pole is put into."""
    from gymnasium.envs.classic_control import CartPoleEnv

    seeds: list[int] = []
    reset = CartPoleEnv.reset

    def watched(self: Any, *, seed: int | None = None, options: Any = None) -> Any:
        seeds.append(seed)
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(CartPoleEnv, "reset", watched)
    return seeds


def test_eval_plays_episodes_by_which_nothing_was_trained_or_chosen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seeds = episodes_played(monkeypatch)
    _, run = trained("dqn", tmp_path)
    before = set(seeds)
    call = in_process(monkeypatch, capsys)
    seeds.clear()
    first = call("eval", run, "--episodes", "9", "--json").json["metrics"]
    # What is built to be prepared begins training's episodes; these are the others.
    fresh = set(seeds) - before
    assert len(fresh) == 9
    assert first["eval/episodes"] == 9
    assert call("eval", run, "--episodes", "9", "--json").json["metrics"] == first
    seeds.clear()
    other = call("eval", run, "--episodes", "9", "--seed", "1", "--json").json["metrics"]
    assert not set(seeds) & fresh
    assert other != first


def test_eval_tells_the_standard_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, run = trained("dqn", tmp_path)
    call = in_process(monkeypatch, capsys)
    metrics = call("eval", run, "--episodes", "16", "--json").json["metrics"]
    # The deviation of the record divides by n, the standard error by n - 1.
    wanted = metrics["eval/return_std"] * (16 / 15) ** 0.5 / 4
    assert metrics["eval/return_se"] == pytest.approx(wanted)
    assert "eval/return_se" in call("eval", run).out
    alone = call("eval", run, "--episodes", "1", "--json").json["metrics"]
    assert "eval/return_se" not in alone


def same(some: Any, others: Any) -> bool:
    return all(torch.equal(tensor, others[name]) for name, tensor in some.items())


def test_eval_takes_the_best_the_last_or_any_kept_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, run = trained("sac", tmp_path)
    call = in_process(monkeypatch, capsys)

    def told(*more: str) -> Any:
        return call("eval", run, "--episodes", "5", "--json", *more).json

    best = trainer.best()["model"]
    assert told()["model"] == best
    assert told()["metrics"] == told("--model", f"{run}/{best}")["metrics"]
    kept = told("--model", "models/11")
    assert kept["metrics"] == told("--model", f"{run}/models/11")["metrics"]
    assert kept["metrics"] == told("--model", "11")["metrics"]
    last = told("--model", "last")
    weights = dict(trainer.agent.weights())
    able = trainer
    assert last["metrics"] == able.evaluate_weights(weights, episodes=5)
    assert last["metrics"] != kept["metrics"]
    other, _ = read_model(LocalStorage(Path(run)), "models/11")
    assert kept["metrics"] == able.evaluate_weights(other, episodes=5)
    moved = copy.deepcopy(trainer.agent.state_dict())
    for tensor in moved["networks"]["actor"]["weights"].values():
        tensor.add_(1)
    assert not same(able.weights_of({"agent": moved}), weights)
    assert same(trainer.agent.weights(), weights), "the agent has its own weights again"
    refused = call("eval", run, "--model", "models/23").refusal()
    assert "no model is kept there; give best, last, or the directory" in refused


def test_any_model_that_eval_takes_is_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, run = trained("dqn", tmp_path)
    call = in_process(monkeypatch, capsys)
    obs = np.random.default_rng(0).normal(size=(500, 4)).astype(np.float32)

    def exported(model: str) -> Any:
        told = call("export", run, "--model", model, "--out", str(tmp_path / model))
        assert told.code == 0, told.err
        return NumpyPolicy.load(told.out.strip())(obs)

    last, best = trainer.agent.act_greedy(obs, None), exported("best")
    assert np.array_equal(exported("last"), last)
    trainer.agent.load_weights(trainer.run.recall_model(trainer.best()["model"]))
    assert np.array_equal(best, trainer.agent.act_greedy(obs, None))
    assert not np.array_equal(best, last)
    refused = call("export", run, "--model", "models/23").refusal()
    assert "no model is kept there; give best, last, or the directory" in refused


def test_a_model_of_another_agent_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other, other_run = trained("ppo", tmp_path)
    _, run = trained("dqn", tmp_path)
    call = in_process(monkeypatch, capsys)
    refused = call("eval", run, "--model", f"{other_run}/{other.best()['model']}")
    assert "build the model as it was when it was saved" in refused.refusal()


def test_a_film_shows_a_whole_episode_and_is_a_gif(tmp_path: Path) -> None:
    from PIL import Image

    _, run = trained("dqn", tmp_path)
    with Image.open(play_run(run, None, episode=0, fps=50.0)) as film:
        assert (film.format, film.size) == ("GIF", (600, 400))
        assert film.n_frames > 5
    with pytest.raises(ConfigError, match=r"end the name with \.gif"):
        play_run(run, tmp_path / "film.mp4", episode=0, fps=25.0)


def test_an_agent_that_only_the_script_knows_is_not_judged_by_another_process(tmp_path) -> None:
    from ludus.rl.agents.dqn import DqnTrainer

    class Mine(DqnTrainer):
        class Agent(DqnTrainer.Agent):
            pass

    with pytest.raises(ConfigError, match="register it under a kind of its own"):
        Mine(small("dqn", **{"evaluation.asynchronous": True})).fit(root=str(tmp_path))


def test_eval_reads_the_copy_where_the_best_model_was_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trainer, run = trained("dqn", tmp_path)
    call = in_process(monkeypatch, capsys)
    whole = call("eval", run, "--episodes", "2", "--json").json
    weights = Path(run) / trainer.best()["model"] / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    told = call("eval", run, "--episodes", "2", "--json")
    assert (told.json["model"], told.json["metrics"]) == ("models/best", whole["metrics"])
    assert "its copy in models/best is read instead" in told.err


def test_a_printed_plan_counts_one_in_the_singular() -> None:
    ppo = render_plan(ludus.example("ppo", num_epochs=1, minibatch_size=256, log_every_epochs=1))
    assert "step (1 pass of 1 minibatch)\n" in ppo
    assert "record (every epoch, and after an evaluation)\n" in ppo
    dqn = render_plan(ludus.example("dqn", update_every_env_steps=1, keep_every_opt_steps=1))
    assert "update (one for 1 env step)\n" in dqn
    assert "save (every opt_step)\n" in dqn
