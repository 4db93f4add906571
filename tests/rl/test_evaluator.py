"""An evaluation counts whole episodes, the same each time, and leaves no trace."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from ludus.core.errors import Interrupted, LudusError
from ludus.envs.config import make_env
from ludus.envs.errors import EnvError
from ludus.envs.spec_json import read_env_section
from ludus.rl.evaluation.evaluator import EpisodeEvaluator, EvaluationTask
from ludus.seeds import GlobalRandom, derive
from ludus.store.checkpoint import digest_of
from tests.envs.odd_envs import linear_policy, walk


def evaluator(num_episodes: int = 7, num_envs: int = 3, section=None, **more) -> EpisodeEvaluator:
    task = EvaluationTask(section or walk(), num_episodes=num_episodes, seed=5, num_envs=num_envs)
    interrupted = {"is_interrupted": more.pop("is_interrupted")} if "is_interrupted" in more else {}
    return EpisodeEvaluator(dataclasses.replace(task, **more), **interrupted)


def played_by_hand(index: int) -> tuple[float, int, bool]:
    """Play one episode of the evaluation in the plainest way."""
    env, policy = make_env(walk()), linear_policy()
    obs, info = env.reset(seed=derive(5, "eval/0", index) % 2**31)
    total, length = 0.0, 0
    while True:
        action = policy.act_greedy(obs[None], info["action_mask"][None])[0]
        obs, reward, terminated, truncated, info = env.step(int(action))
        total, length = total + reward, length + 1
        if terminated or truncated:
            return total, length, info["is_success"]


@pytest.mark.covers("000-S10", "000-D9", "000-D10")
def test_every_episode_is_whole_and_counts_once() -> None:
    """Means over episodes, not over steps, and none cut short or counted twice."""
    played = [played_by_hand(index) for index in range(7)]
    returns, lengths, successes = (np.array(column) for column in zip(*played, strict=True))
    assert len(set(lengths.tolist())) > 2, "episodes of one length would hide the mistake"
    score, record = evaluator().evaluate(linear_policy())
    assert score == record["eval/return_mean"] == returns.mean()
    assert record == {
        "eval/return_mean": returns.mean(),
        "eval/return_std": returns.std(),
        "eval/return_min": returns.min(),
        "eval/return_max": returns.max(),
        "eval/length_mean": lengths.mean(),
        "eval/success_rate": successes.mean(),
    }


@pytest.mark.parametrize("num_envs", [1, 2, 7, 50])
def test_the_number_of_envs_does_not_show(num_envs: int) -> None:
    assert evaluator(num_envs=num_envs).evaluate(linear_policy()) == evaluator().evaluate(
        linear_policy()
    )


def test_the_same_policy_twice_gives_the_same_record() -> None:
    judge, policy = evaluator(), linear_policy()
    assert judge.evaluate(policy) == judge.evaluate(policy)
    assert judge.evaluate(policy) != judge.evaluate(linear_policy(seed=1))


def test_no_success_rate_where_the_env_reports_none() -> None:
    plain = {"kind": "gymnasium", "id": "CartPole-v1", "kwargs": {}, "max_episode_steps": 9}
    section = read_env_section({**plain, "wrappers": []})

    class Left:
        def act_greedy(self, obs_ND, masks):
            assert masks is None
            return np.zeros(len(obs_ND), np.int64)

    score, record = evaluator(2, 2, section).evaluate(Left())
    assert "eval/success_rate" not in record
    assert score == record["eval/length_mean"]


@pytest.mark.parametrize("is_training", [True, False])
def test_an_evaluation_leaves_no_trace(is_training: bool) -> None:
    policy, everything = linear_policy(), GlobalRandom()
    policy.train(is_training)
    torch.rand(3)
    before = digest_of(everything.state_dict())
    evaluator().evaluate(policy)
    assert digest_of(everything.state_dict()) == before
    assert policy.is_training == is_training
    assert policy.was_training_when_asked == {False}


def test_a_policy_is_put_back_even_when_the_env_breaks() -> None:
    policy = linear_policy()
    broken = evaluator(3, 2, walk("raise", at=2))
    with pytest.raises(EnvError, match="no more"):
        broken.evaluate(policy)
    assert policy.is_training


def test_a_run_that_is_to_pause_does_not_wait_for_the_last_episode() -> None:
    asked = iter([False, False, True])
    judge = evaluator(is_interrupted=lambda: next(asked))
    with pytest.raises(Interrupted):
        judge.evaluate(linear_policy())


def test_a_film_shows_one_episode_from_its_beginning_to_its_end() -> None:
    _, length, _ = played_by_hand(2)
    frames = evaluator().film(linear_policy(), 2, fps=20)
    assert [int(frame[0, 0, 0]) for frame in frames] == list(range(length + 1))
    assert frames[0].shape == (4, 6, 3)
    slower = evaluator().film(linear_policy(), 2, fps=5)
    shown = [*range(0, length, 4), length]
    assert [int(frame[0, 0, 0]) for frame in slower] == shown
    assert len(evaluator().film(linear_policy(), 2, fps=20, max_frames=2)) == 2


def test_an_env_that_cannot_draw_itself_is_not_filmed(monkeypatch) -> None:
    from tests.envs.odd_envs import Walk

    monkeypatch.setattr(Walk, "render_mode", None)
    with pytest.raises(LudusError, match="cannot be filmed"):
        evaluator().film(linear_policy(), 0, fps=10)
