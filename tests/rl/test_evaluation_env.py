"""What an agent is judged in: the env itself, without what only helps it to learn."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import pytest

import ludus
from ludus.cli.explain import describe
from ludus.config.base import from_data
from ludus.config.registry import register
from ludus.config.sections import StrictConfig
from ludus.core.errors import ConfigError, LudusError
from ludus.envs.config import AnyEnv, changes_rewards, with_own_rewards
from ludus.envs.errors import EnvError
from ludus.envs.vector import VectorEnv, make_vector_env
from ludus.envs.wrappers._table import ClipReward
from ludus.rl.evaluation.evaluator import EpisodeEvaluator, EvaluationTask, standard_error
from ludus.rl.sampling.sampler import Episodes
from tests.config.older import as_version_4
from tests.envs.odd_envs import Walk, linear_policy, walk
from tests.rl.random_walks import Cheat, walk_config
from tests.rl.small import small
from tests.supervised.conftest import lines

pytestmark = pytest.mark.usefixtures("warm_children")

TENTH = {"kind": "scale_reward", "scale": 0.1}
CLIP = {"kind": "clip_reward", "low": -0.05, "high": 0.05}
ALL = {"action_mask": np.ones(3, bool)}
POLE = {"kind": "gymnasium", "id": "CartPole-v1", "kwargs": {}, "max_episode_steps": 30}


@register("wrapper", "tests_bonus")
class Bonus:
    """Makes every reward one greater; it says so itself, being made by a function."""

    changes_rewards = True

    class Config(StrictConfig):
        kind: Literal["tests_bonus"]
        """A bonus for every step."""

    @staticmethod
    def make(env: AnyEnv, config: Config) -> AnyEnv:
        return gymnasium.wrappers.TransformReward(env, lambda reward: float(reward) + 1)


@register("wrapper", "tests_doubled")
class Doubled(gymnasium.RewardWrapper[Any, Any]):
    """Doubles rewards; gymnasium's own class says that it does."""

    class Config(StrictConfig):
        kind: Literal["tests_doubled"]
        """Twice the reward."""

    def __init__(self, env: AnyEnv, config: Config) -> None:
        super().__init__(env)

    def reward(self, reward: Any) -> float:
        return 2 * float(reward)


class Right:
    """Always goes right."""

    def act_greedy(self, obs_ND: Any, masks_NA: Any) -> Any:
        return np.full(len(obs_ND), 1)


def pole(*wrappers: dict[str, Any]) -> dict[str, Any]:
    return {**POLE, "wrappers": list(wrappers)}


def evaluated(result: Any, name: str = "eval/return_mean") -> list[float]:
    rows = lines(result.run_dir)
    return [row[name] for row in rows if name in row]


def test_each_episode_of_an_evaluation_is_reset_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[int | None] = []
    reset = Walk.reset

    def watched(self: Any, *, seed: int | None = None, options: Any = None) -> Any:
        seeds.append(seed)
        return reset(self, seed=seed, options=options)

    monkeypatch.setattr(Walk, "reset", watched)
    task = EvaluationTask(walk(), num_episodes=20, seed=5, num_envs=8)
    EpisodeEvaluator(task).evaluate(linear_policy())
    assert len(seeds) == len(set(seeds)) == 20


@pytest.mark.parametrize(
    "wrapper", [TENTH, CLIP, {"kind": "tests_bonus"}, {"kind": "tests_doubled"}]
)
def test_wrappers_that_change_rewards_do_not_change_the_score(
    wrapper: dict[str, Any], tmp_path: Path
) -> None:
    config = small("dqn", env=pole(wrapper))
    result = ludus.build_trainer(config).fit(root=str(tmp_path))
    scores, lengths = evaluated(result), evaluated(result, "eval/length_mean")
    assert scores
    # The pole's own reward is 1 at every step.
    assert scores == lengths
    assert result.best["score"] in scores


def test_the_target_is_a_return_of_the_env_itself(tmp_path: Path) -> None:
    config = small("dqn", env=pole(TENTH), **{"evaluation.target": 5.0})
    result = ludus.build_trainer(config).fit(root=str(tmp_path))
    assert result.status == "stopped", "a tenth of it would never reach the target"


def test_wrappers_that_change_no_rewards_stay(tmp_path: Path) -> None:
    section = walk_config(wrappers=[{"kind": "time_limit", "max_episode_steps": 7}, TENTH])
    assert [wrapper.kind for wrapper in with_own_rewards(section).wrappers] == ["time_limit"]
    plain = walk_config(wrappers=[{"kind": "time_limit", "max_episode_steps": 7}])
    assert with_own_rewards(plain) is plain
    assert changes_rewards(ClipReward.Config(kind="clip_reward", low=0.0, high=1.0))


@pytest.mark.covers("000-S2")
def test_an_env_of_its_own_is_what_is_judged(tmp_path: Path) -> None:
    """Also with the wrappers that change rewards, where it names them."""
    shorter = {**pole(TENTH), "max_episode_steps": 4}
    config = small("dqn", **{"evaluation.env": shorter})
    result = ludus.build_trainer(config).fit(root=str(tmp_path))
    assert set(evaluated(result, "eval/length_mean")) == {4.0}
    assert evaluated(result)[0] == pytest.approx(0.4)


@pytest.mark.covers("000-S10")
def test_several_envs_are_judged_and_the_first_decides(tmp_path: Path) -> None:
    more = {"short": {**pole(), "max_episode_steps": 3}, "scaled": pole(TENTH)}
    config = small("ppo", **{"evaluation.more_envs": more})
    result = ludus.build_trainer(config).fit(root=str(tmp_path))
    assert set(evaluated(result, "eval/short/return_mean")) == {3.0}
    scores, scaled = evaluated(result), evaluated(result, "eval/scaled/return_mean")
    assert scaled == pytest.approx([0.1 * score for score in scores])
    assert result.best["score"] == max(scores)


def test_an_evaluation_env_that_the_agent_cannot_act_in_is_refused_before_training(
    tmp_path: Path,
) -> None:
    other = {**pole(), "id": "Acrobot-v1"}
    for key, value in (("evaluation.env", other), ("evaluation.more_envs", {"far": other})):
        with pytest.raises(ConfigError, match=rf"'{key}.*has other observations"):
            ludus.build_trainer(small("dqn", **{key: value})).fit(root=str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_the_name_of_a_further_env_is_a_word() -> None:
    with pytest.raises(ConfigError, match=r"more_envs.*'a/b'"):
        small("dqn", **{"evaluation.more_envs": {"a/b": pole()}})
    with pytest.raises(ConfigError, match=r"evaluation.more_envs.one.id|no env has the id"):
        small("dqn", **{"evaluation.more_envs": {"one": {**pole(), "id": "Nothing-v0"}}})


def test_an_episode_without_an_end_is_cut_and_counted() -> None:
    section = walk_config(length=10**9)
    task = EvaluationTask(section, num_episodes=3, seed=0, num_envs=2, max_episode_length=11)
    _, record = EpisodeEvaluator(task).evaluate(Right())
    assert record["eval/cut_episodes"] == 3
    assert record["eval/length_mean"] == 11
    ending = EvaluationTask(walk_config(length=11), 3, seed=0, num_envs=2, max_episode_length=11)
    assert "eval/cut_episodes" not in EpisodeEvaluator(ending).evaluate(Right())[1]


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_sampled_actions_are_drawn_the_same_each_time_and_not_from_training(
    kind: str, tmp_path: Path
) -> None:
    # At the end of training exploration is at its final value, whatever the run's length was.
    more = {"exploration.schedule.final": 0.8} if kind in ("dqn", "iqn") else {}
    config = small(kind, **{"evaluation.actions": "sampled"}, **more)
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(root=str(tmp_path))
    agent = trainer.agent
    before = agent.generator.bit_generator.state
    greedy = config.replace(**{"evaluation.actions": "greedy"})
    sampled, best = (ludus.Evaluator(c).evaluate(agent) for c in (config, greedy))
    assert agent.generator.bit_generator.state == before
    assert agent.is_training
    assert ludus.Evaluator(config).evaluate(agent) == sampled
    assert sampled != best


def test_a_policy_that_cannot_draw_is_told() -> None:
    task = EvaluationTask(walk(), num_episodes=2, seed=5, num_envs=1, actions="sampled")
    with pytest.raises(LudusError, match="LinearPolicy has no act_sampled"):
        EpisodeEvaluator(task).evaluate(linear_policy())


@pytest.mark.parametrize(
    ("returned", "field"),
    [
        ((np.zeros(2, np.float32), float("nan"), False, False, ALL), "reward is nan"),
        ((np.full(2, np.nan, np.float32), 0.0, False, False, ALL), "observation is nan"),
        ((np.zeros(3, np.float32), 0.0, False, False, {}), "has the shape"),
        ((np.zeros(2, np.float32), 0.0, 1, False, {}), "terminated is 1"),
        ((np.zeros(2, np.float32), 0.0, False, False), "4 values"),
        ((np.zeros(2, np.float32), 0.0, False, False, {}), "action_mask is missing"),
    ],
)
def test_an_env_that_breaks_its_contract_in_an_evaluation_is_named(
    returned: Any, field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Walk, "step", lambda self, action: returned)
    task = EvaluationTask(walk(), num_episodes=2, seed=5, num_envs=1)
    with pytest.raises(EnvError, match=rf"tests_walk, env 0, episode 0, step 1: .*{field}"):
        EpisodeEvaluator(task).evaluate(linear_policy())


def test_a_file_of_version_1_is_judged_as_it_was() -> None:
    data = as_version_4(small("dqn", env=pole(TENTH)))
    for key in ("env", "more_envs", "actions", "max_episode_length"):
        del data["evaluation"][key]
    data["version"] = 1
    config: Any = from_data(data, source="old.yaml")
    assert config.evaluation.env == config.env
    assert (config.evaluation.actions, config.evaluation.more_envs) == ("greedy", {})
    data["env"]["wrappers"] = []
    assert from_data(data, source="old.yaml").evaluation.env is None


def test_the_standard_error_is_that_of_the_mean() -> None:
    task = EvaluationTask(walk(), num_episodes=6, seed=5, num_envs=2)
    episodes = EpisodeEvaluator(task).play(linear_policy(), walk())
    returns = [episode.total_return for episode in episodes]
    assert standard_error(episodes) == pytest.approx(np.std(returns, ddof=1) / 6**0.5)
    assert np.isnan(standard_error(episodes[:1]))


def test_every_key_of_a_further_env_is_explained() -> None:
    config = small("dqn", **{"evaluation.more_envs": {"short": pole(TENTH)}})
    told = {name: value for name, value, _ in describe(config)}
    assert told["evaluation.more_envs.short.id"] == "CartPole-v1"
    assert told["evaluation.more_envs.short.wrappers.0.scale"] == 0.1


@pytest.mark.parametrize("workers", [0, 2])
def test_training_logs_the_returns_of_the_env_itself_beside_those_learned_from(
    workers: int, tmp_path: Path
) -> None:
    repeat = {"kind": "action_repeat", "num_repeats": 2}
    config = small("ppo", env=pole(TENTH, repeat), **{"settings.workers": workers})
    result = ludus.build_trainer(config).fit(root=str(tmp_path))
    own = evaluated(result, "rollout/ep_rew_mean")
    steps = evaluated(result, "rollout/ep_len_mean")
    assert own
    # Each step is two of the pole's, but for the last one of some episodes.
    assert all(2 * n - 1 <= total <= 2 * n for total, n in zip(own, steps, strict=True))
    shaped = evaluated(result, "rollout/ep_shaped_rew_mean")
    assert shaped == pytest.approx([0.1 * total for total in own])


def test_there_is_one_training_return_where_nothing_changes_rewards(tmp_path: Path) -> None:
    result = ludus.build_trainer(small("ppo")).fit(root=str(tmp_path))
    assert evaluated(result, "rollout/ep_rew_mean") == evaluated(result, "rollout/ep_len_mean")
    assert not evaluated(result, "rollout/ep_shaped_rew_mean")


@pytest.mark.parametrize("kind", ["random_walk", "walk_with_state"])
def test_own_returns_survive_a_restore_in_the_middle_of_an_episode(kind: str) -> None:
    section = walk_config(kind, length=9, wrappers=[TENTH])

    def made() -> tuple[VectorEnv, Episodes]:
        envs = make_vector_env(section, 2, seed=0)
        envs.reset()
        return envs, Episodes(2, 10, is_shaped=True)

    def play(envs: VectorEnv, episodes: Episodes, count: int) -> None:
        for _ in range(count):
            envs.step(np.array([1, -1]))
            episodes.count(envs)

    straight, killed, resumed = made(), made(), made()
    # One of the walks goes by how many steps were ever made: let both begin at the same.
    Cheat.steps_ever[0] = 0
    play(*straight, 20)
    Cheat.steps_ever[0] = 0
    play(*killed, 13)
    for old, new in zip(killed, resumed, strict=True):
        new.load_state_dict(old.state_dict())
    play(*resumed, 7)
    assert resumed[1].metrics() == straight[1].metrics()
    shaped, own = (
        straight[1].metrics()[f"rollout/{name}"] for name in ("ep_shaped_rew_mean", "ep_rew_mean")
    )
    assert shaped == pytest.approx(0.1 * own)
    assert np.array_equal(resumed[0].own_rewards, straight[0].own_rewards)


def test_a_failure_of_the_evaluation_process_is_in_the_journal_of_events(tmp_path: Path) -> None:
    trainer: Any = ludus.build_trainer(
        small("dqn", **{"evaluation.asynchronous": True, "evaluation.timeout_seconds": 60.0})
    )

    class Killer:
        """Ends the process once, in the middle of training."""

        def after_evaluate(self, run: Any) -> None:
            if not (tmp_path / "flag").exists():
                (tmp_path / "flag").touch()
                os.kill(trainer.evaluations.async_evaluator.worker_pid, signal.SIGKILL)

    trainer.add(Killer())
    result = trainer.fit(root=str(tmp_path))
    events = lines(result.run_dir, "events.jsonl")
    failures = [row["reason"] for row in events if row["event"] == "evaluation_failed"]
    assert failures
    assert "was ended by SIGKILL" in failures[0]
