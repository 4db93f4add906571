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
from ludus.core.errors import Interrupted, LudusError
from ludus.judge.beside import AsyncEvaluator
from ludus.rl import evaluation_worker
from ludus.rl.agents import rebuild as rebuild_agent
from ludus.rl.evaluation_worker import EpisodeJob
from ludus.rl.evaluator import EpisodeEvaluator, EvaluationTask
from ludus.seeds import GlobalRandom
from ludus.store.checkpoint import digest_of
from tests.envs.odd_envs import linear_policy, linear_weights, rebuild, walk

COUNTERS = {"opt_steps": 30, "env_steps": 120}


@pytest.fixture(autouse=True)
def plugins(monkeypatch) -> None:
    monkeypatch.setattr(registry, "loaded_plugins", ["tests.rl.child_plugin"])
    monkeypatch.setattr(evaluation_worker, "rebuild_policy", rebuild)


@pytest.fixture
def make():
    """Make AsyncEvaluators that are closed at the end; each keeps its events."""
    made = []

    def make_one(trouble: str = "none", at: int = -1, once: str = "", **more) -> AsyncEvaluator:
        task = EvaluationTask(walk(trouble, at, once), num_episodes=6, seed=5, num_envs=2)
        beside = AsyncEvaluator(EpisodeJob(task, {"kind": "linear"}), **more)
        beside.events = []
        beside.on_event = beside.events.append
        made.append(beside)
        return beside

    yield make_one
    for one in made:
        one.close()


def expected(seed: int = 0):
    task = EvaluationTask(walk(), num_episodes=6, seed=5, num_envs=2)
    return EpisodeEvaluator(task).evaluate(linear_policy(seed))


@pytest.mark.covers("000-D7")
def test_the_result_is_that_of_the_evaluator_in_process(make) -> None:
    beside = make()
    assert beside.collect() is None
    for seed in range(2):
        weights = linear_weights(seed)
        beside.launch(COUNTERS, weights)
        # Training goes on: what is judged is the policy of the launch.
        weights["linear"].zero_()
        counters, score, record, kept = beside.collect()
        assert (score, record) == expected(seed)
        assert counters == COUNTERS
        assert torch.equal(kept["linear"], linear_weights(seed)["linear"])
    assert beside.collect() is None
    assert beside.inexact_because() == []
    assert beside.events == []


def test_a_second_launch_before_the_first_is_collected_is_refused(make) -> None:
    beside = make()
    beside.launch(COUNTERS, linear_weights())
    with pytest.raises(LudusError, match="pending already"):
        beside.launch(COUNTERS, linear_weights())


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        ("exit", "exit code 5"),
        ("hang", "did not answer within 2 seconds"),
        ("raise", "ValueError: no more"),
        ("print", None),
    ],
)
def test_a_worker_that_fails_once_is_replaced_and_nothing_shows(
    make, tmp_path: Path, trouble: str, words: str | None
) -> None:
    """Row 8 of the faults: the worker crashes, hangs, is killed, prints without end."""
    everything = digest_of(GlobalRandom().state_dict())
    beside = make(trouble, at=3, once=str(tmp_path / "flag"), timeout=2.0)
    beside.launch(COUNTERS, linear_weights())
    _, score, record, _ = beside.collect()
    assert (tmp_path / "flag").exists(), "nothing went wrong, so nothing was tested"
    assert (score, record) == expected()
    assert beside.inexact_because() == []
    assert len(beside.events) == (0 if words is None else 1)
    assert words is None or words in beside.events[0]
    assert digest_of(GlobalRandom().state_dict()) == everything


def test_a_worker_killed_from_outside_is_replaced(make, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    beside = make("hang", at=3, once=str(flag))
    beside.launch(COUNTERS, linear_weights())
    while not flag.exists():
        time.sleep(0.01)
    os.kill(beside.worker_pid, signal.SIGKILL)
    assert beside.collect()[1:3] == expected()


def test_where_no_worker_can_be_started_the_evaluation_is_made_here(make, monkeypatch) -> None:
    monkeypatch.setattr("sys.executable", "/no/such/python")
    beside = make()
    beside.launch(COUNTERS, linear_weights())
    assert beside.collect()[1:3] == expected()
    assert len(beside.events) == 3
    assert beside.inexact_because() == []


@pytest.mark.parametrize("trouble", ["exit", "raise"])
def test_an_evaluation_that_always_fails_is_told_and_training_goes_on(make, trouble: str) -> None:
    beside = make(trouble, at=3, max_restarts=1)
    beside.launch(COUNTERS, linear_weights())
    counters, score, record, _ = beside.collect()
    assert score is None
    assert counters == COUNTERS
    assert math.isnan(record["eval/return_mean"])
    assert set(record) == {name for name in expected()[1] if "success" not in name}
    assert len(beside.events) == 3, "two workers failed, and there is no result"
    assert "opt_steps 30" in beside.inexact_because()[0]
    # The reason is part of the state, so that a resumed run says so too.
    other = make()
    other.load_state_dict(beside.state_dict())
    assert other.inexact_because() == beside.inexact_because()


@pytest.mark.covers("000-S11")
def test_a_pending_evaluation_is_taken_up_after_a_resume(make) -> None:
    first, second = make(), make()
    first.launch(COUNTERS, linear_weights())
    state = first.state_dict()
    second.load_state_dict(state)
    assert second.is_pending
    assert digest_of(second.state_dict()) == digest_of(state)
    second.open()
    assert second.collect()[:3] == first.collect()[:3] == (COUNTERS, *expected())
    assert not second.is_pending


def test_a_run_that_is_to_pause_keeps_the_evaluation_pending(make) -> None:
    beside = make("hang", at=3)
    beside.is_interrupted = lambda: True
    beside.launch(COUNTERS, linear_weights())
    with pytest.raises(Interrupted):
        beside.collect()
    assert beside.is_pending


def test_nothing_is_left_after_closing_even_in_the_middle(make) -> None:
    before = len(os.listdir("/proc/self/fd"))
    beside = make("hang", at=3)
    beside.launch(COUNTERS, linear_weights())
    worker = psutil.Process(beside.worker_pid)
    beside.close()
    beside.close()
    assert not worker.is_running()
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_trained_agent_is_rebuilt_from_its_config(monkeypatch) -> None:
    monkeypatch.undo()
    config = ludus.example("dqn")
    plain = config.model_dump(mode="json")
    task = EvaluationTask(config.env, num_episodes=3, seed=5, num_envs=2)
    agent = rebuild_agent(plain)
    beside = AsyncEvaluator(EpisodeJob(task, plain))
    beside.launch(COUNTERS, agent.weights())
    assert beside.collect()[1:3] == EpisodeEvaluator(task).evaluate(agent)
    beside.close()
