"""What a user does with a trained agent: lengthen its run, evaluate, film, export."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import ludus
from ludus.commands import export_run, play_run
from ludus.core.errors import ConfigError
from ludus.rl.numpy_policy import NumpyPolicy
from tests.command_line import in_process
from tests.rl.small import small


def trained(kind: str, root: Path) -> tuple[ludus.Trainer, str]:
    trainer = ludus.build_trainer(small(kind))
    return trainer, str(trainer.fit(root=str(root), name=kind).run_dir)


@pytest.mark.parametrize(
    ("kind", "key", "longer"),
    [("ppo", "epochs.max_env_steps", 240), ("dqn", "steps.max_opts", 40)],
)
def test_a_run_that_ended_can_be_made_longer(
    kind, key, longer, tmp_path, monkeypatch, capsys
) -> None:
    _, run = trained(kind, tmp_path)
    call = in_process(monkeypatch, capsys)
    assert f"as in {key}=" in call("resume", run, "--json").err
    counters = call("resume", run, f"{key}={longer}", "--json").json["counters"]
    assert counters["env_steps" if kind == "ppo" else "opt_steps"] >= longer


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_an_exported_policy_acts_as_the_best_one_kept(kind: str, tmp_path: Path) -> None:
    trainer, run = trained(kind, tmp_path)
    policy = NumpyPolicy.load(export_run(run, None))
    trainer.agent.load_weights(trainer.recall_model(trainer.best()["model"]))
    obs = np.random.default_rng(0).normal(size=(5, *trainer.env.spec.obs_shape)).astype(np.float32)
    assert np.allclose(policy(obs), trainer.agent.act_greedy(obs, None), atol=1e-5)


def test_a_film_shows_a_whole_episode_and_is_a_gif(tmp_path: Path) -> None:
    from PIL import Image

    _, run = trained("dqn", tmp_path)
    with Image.open(play_run(run, None, episode=0, fps=50.0)) as film:
        assert (film.format, film.size) == ("GIF", (600, 400))
        assert film.n_frames > 5
    with pytest.raises(ConfigError, match=r"end the name with \.gif"):
        play_run(run, tmp_path / "film.mp4", episode=0, fps=25.0)


def test_an_agent_that_only_the_script_knows_is_not_judged_by_another_process(tmp_path) -> None:
    from ludus.rl.trainers.dqn import DqnTrainer

    class Mine(DqnTrainer):
        class Agent(DqnTrainer.Agent):
            pass

    with pytest.raises(ConfigError, match="register it under a kind of its own"):
        Mine(small("dqn", **{"evaluation.asynchronous": True})).fit(root=str(tmp_path))
