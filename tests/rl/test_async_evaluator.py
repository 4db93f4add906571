"""An evaluation beside training has the result of one in its midst, whatever befalls the worker."""

from __future__ import annotations

import math
import os
import signal
import time
from pathlib import Path

import psutil
import pytest
import torch

import ludus
from ludus.config import registry
from ludus.core import Run
from ludus.core.errors import ConfigError, Interrupted, LudusError
from ludus.judge.async_evaluator import AsyncEvaluator
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.rl.evaluation.evaluator import EpisodeEvaluator, EvaluationTask, rebuild_agent
from ludus.seeds import GlobalRandom
from ludus.store.checkpoint import digest_of
from tests.clocks import pass_once
from tests.envs.odd_envs import linear_policy, linear_weights, walk
from tests.rl.linear_plugin import LinearTrainer, linear_config

pytestmark = pytest.mark.usefixtures("warm_children")

COUNTERS = {"opt_steps": 30, "env_steps": 120}


@pytest.fixture(autouse=True)
def plugins(monkeypatch) -> None:
    monkeypatch.setattr(registry, "loaded_plugins", ["tests.rl.linear_plugin"])


@pytest.fixture
def make():
    """Make AsyncEvaluators that are closed at the end; each keeps its events."""
    made = []

    def make_one(trouble: str = "none", at: int = -1, once: str = "", **more) -> AsyncEvaluator:
        async_evaluator = AsyncEvaluator(linear_config(trouble, at, once), **more)
        async_evaluator.events = []
        async_evaluator.on_event = async_evaluator.events.append
        made.append(async_evaluator)
        return async_evaluator

    yield make_one
    for one in made:
        one.close()


def expected(seed: int = 0):
    task = EvaluationTask(walk(), num_episodes=6, seed=5, num_envs=2)
    return EpisodeEvaluator(task).evaluate(linear_policy(seed))[1]


@pytest.mark.covers("000-D7")
def test_the_result_is_that_of_the_evaluator_in_process(make) -> None:
    async_evaluator = make()
    assert async_evaluator.collect() is None
    for seed in range(2):
        weights = linear_weights(seed)
        async_evaluator.launch(COUNTERS, weights)
        # Training goes on: what is judged is the policy of the launch.
        weights["linear"].zero_()
        done = async_evaluator.collect()
        assert done.metrics == expected(seed)
        assert not done.is_lost
        assert done.counters == COUNTERS
        assert torch.equal(done.weights["linear"], linear_weights(seed)["linear"])
    assert async_evaluator.collect() is None
    assert async_evaluator.inexact_because() == []
    assert async_evaluator.events == []


def test_weights_that_are_no_tensors_are_refused_before_a_worker_starts(make) -> None:
    async_evaluator = make()
    with pytest.raises(LudusError, match=r"'host' is a dict; give .* networks as 'host\.weight'"):
        async_evaluator.launch(COUNTERS, {"host": linear_weights()})
    assert not async_evaluator.is_pending
    assert async_evaluator.worker_pid is None


def test_a_second_launch_before_the_first_is_collected_is_refused(make) -> None:
    async_evaluator = make()
    async_evaluator.launch(COUNTERS, linear_weights())
    with pytest.raises(LudusError, match="pending already"):
        async_evaluator.launch(COUNTERS, linear_weights())


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("exit", "exit code 5"),
        ("hang", "did not answer within 120 seconds"),
        ("raise", "ValueError: no more"),
        ("print", None),
    ],
)
def test_a_worker_that_fails_once_is_replaced_and_nothing_shows(
    make, tmp_path: Path, trouble: str, words: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 8 of the faults: the worker crashes, hangs, is killed, prints without end."""
    everything = digest_of(GlobalRandom().state_dict())
    if trouble == "hang":
        pass_once(monkeypatch, (tmp_path / "flag").exists, 120.0)
    async_evaluator = make(trouble, at=3, once=str(tmp_path / "flag"), timeout=120.0)
    async_evaluator.launch(COUNTERS, linear_weights())
    metrics = async_evaluator.collect().metrics
    assert (tmp_path / "flag").exists(), "nothing went wrong, so nothing was tested"
    assert metrics == expected()
    assert async_evaluator.inexact_because() == []
    assert len(async_evaluator.events) == (0 if words is None else 1)
    assert words is None or words in async_evaluator.events[0]
    assert digest_of(GlobalRandom().state_dict()) == everything


def test_a_worker_killed_from_outside_is_replaced(make, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    async_evaluator = make("hang", at=3, once=str(flag))
    async_evaluator.launch(COUNTERS, linear_weights())
    while not flag.exists():
        time.sleep(0.01)
    os.kill(async_evaluator.worker_pid, signal.SIGKILL)
    assert async_evaluator.collect().metrics == expected()


def test_where_no_worker_can_be_started_the_evaluation_is_made_here(make, monkeypatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    async_evaluator = make()
    async_evaluator.launch(COUNTERS, linear_weights())
    assert async_evaluator.collect().metrics == expected()
    assert len(async_evaluator.events) == 3
    assert async_evaluator.inexact_because() == []


@pytest.mark.parametrize("trouble", ["exit", "raise"])
def test_an_evaluation_that_always_fails_is_told_and_training_goes_on(make, trouble: str) -> None:
    async_evaluator = make(trouble, at=3, max_restarts=1)
    async_evaluator.launch(COUNTERS, linear_weights())
    done = async_evaluator.collect()
    assert done.is_lost
    assert done.counters == COUNTERS
    assert all(math.isnan(value) for value in done.metrics.values())
    assert set(done.metrics) == {name for name in expected() if "success" not in name}
    assert len(async_evaluator.events) == 3, "two workers failed, and there is no result"
    assert "opt_steps 30" in async_evaluator.inexact_because()[0]
    # The reason is part of the state, so that a resumed run says so too.
    other = make()
    other.load_state_dict(async_evaluator.state_dict())
    assert other.inexact_because() == async_evaluator.inexact_because()


@pytest.mark.covers("000-S11")
def test_a_pending_evaluation_is_taken_up_after_a_resume(make) -> None:
    first, second = make(), make()
    first.launch(COUNTERS, linear_weights())
    state = first.state_dict()
    second.load_state_dict(state)
    assert second.is_pending
    assert digest_of(second.state_dict()) == digest_of(state)
    second.open()
    one, two = first.collect(), second.collect()
    assert (one.counters, one.metrics) == (two.counters, two.metrics) == (COUNTERS, expected())
    assert not second.is_pending


def test_a_run_that_is_to_pause_keeps_the_evaluation_pending(make) -> None:
    async_evaluator = make("hang", at=3)
    async_evaluator.is_interrupted = lambda: True
    async_evaluator.launch(COUNTERS, linear_weights())
    with pytest.raises(Interrupted):
        async_evaluator.collect()
    assert async_evaluator.is_pending


def test_nothing_is_left_after_closing_even_in_the_middle(make) -> None:
    before = len(os.listdir("/proc/self/fd"))
    async_evaluator = make("hang", at=3)
    async_evaluator.launch(COUNTERS, linear_weights())
    worker = psutil.Process(async_evaluator.worker_pid)
    async_evaluator.close()
    async_evaluator.close()
    assert not worker.is_running()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_trained_agent_is_rebuilt_from_its_config(monkeypatch) -> None:
    monkeypatch.undo()
    config = ludus.example("dqn", **{"evaluation.episodes": 3, "evaluation.envs": 2})
    agent = rebuild_agent(config)
    async_evaluator = AsyncEvaluator(config)
    async_evaluator.launch(COUNTERS, agent.weights())
    assert async_evaluator.collect().metrics == ludus.Evaluator(config).evaluate(agent)[1]
    async_evaluator.close()


def test_several_scores_of_one_evaluation_are_judged_as_of_its_launch(make) -> None:
    """By a family from outside ludus: its class is found in the child by the kind in its config."""
    kept = []
    judge = Judge(
        Score("return", "eval/return_mean", "max"), Score("length", "eval/length_mean", "min")
    )
    async_evaluator, run = make(), Run()
    run.keep_model = lambda name, weights, note: kept.append((name, weights["linear"], note))
    for seed in range(2):
        async_evaluator.launch({"opt_steps": 10 * seed + 10}, linear_weights(seed))
        run.boundaries, run.counters["opt_steps"] = seed, 999
        done = async_evaluator.collect()
        judge.update(run, done.metrics, lambda score, d=done: d.weights, counters=done.counters)
    found = [expected(seed) for seed in range(2)]
    for best, metric, pick in (
        (judge.best, "eval/return_mean", max),
        (judge.more_bests["length"], "eval/length_mean", min),
    ):
        values = [metrics[metric] for metrics in found]
        seed = values.index(pick(values))
        assert (best["score"], best["counters"]) == (values[seed], {"opt_steps": 10 * seed + 10})
        (weights,) = [w for name, w, _ in kept if name == best["model"]]
        assert torch.equal(weights, linear_weights(seed)["linear"])


def test_a_family_that_cannot_be_evaluated_beside_training_is_told(monkeypatch) -> None:
    monkeypatch.delattr(LinearTrainer, "evaluation_job")
    with pytest.raises(ConfigError, match=r"kind 'linear' have no evaluation_job\(config\)"):
        AsyncEvaluator(linear_config())


def test_a_plugin_that_the_worker_was_not_given_is_told_with_the_remedy(make, monkeypatch) -> None:
    monkeypatch.setattr(registry, "loaded_plugins", [])
    with pytest.raises(ConfigError, match=r"cannot rebuild .* named 'linear'.* --plugin that_mod"):
        make().check()
    monkeypatch.setattr(registry, "loaded_plugins", ["tests.rl.linear_plugin"])
    make().check()


def test_a_worker_that_has_answered_is_checked_again_without_waiting_for_a_greeting(
    make, monkeypatch
) -> None:
    async_evaluator = make()
    async_evaluator.check()
    pid = async_evaluator.worker_pid
    monkeypatch.setattr("ludus.judge.async_evaluator._START_SECONDS", 10.0)
    async_evaluator.check()
    assert async_evaluator.worker_pid == pid
    async_evaluator.launch(COUNTERS, linear_weights(0))
    assert async_evaluator.collect().metrics == expected(0)
