"""Envs in worker processes: the same numbers as in one process, and typed errors for what breaks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import ludus
from ludus.config import registry
from ludus.core.errors import CheckpointError, ConfigError, LudusError
from ludus.envs.errors import EnvError
from ludus.envs.spec_json import read_env_section, spec_from_json, spec_to_json
from ludus.envs.vector import make_vector_env
from ludus.envs.workers import WorkerVectorEnv
from ludus.store.checkpoint import digest_of
from tests.envs.odd_envs import walk
from tests.rl.small import small

pytestmark = pytest.mark.usefixtures("warm_children")

ARRAYS = ("obs", "next_obs", "rewards", "terminated", "truncated", "successes", "cut", "has_ended")
MASKS = ("masks", "next_masks")


@pytest.fixture(autouse=True)
def plugins(monkeypatch) -> None:
    monkeypatch.setattr(registry, "loaded_plugins", ["tests.envs.odd_envs"])


def gym(name: str) -> Any:
    plain = {"kind": "gymnasium", "id": name, "kwargs": {}, "max_episode_steps": 20, "wrappers": []}
    return read_env_section(plain)


def actions_of(env: Any, generator: np.random.Generator) -> Any:
    if hasattr(env.spec.action, "n"):
        return generator.integers(0, env.spec.action.n, env.num_envs)
    size = (env.num_envs, len(env.spec.action.low))
    return generator.uniform(-1, 1, size).astype(np.float32)


def check_alike(one: Any, other: Any, names: tuple[str, ...] = ARRAYS) -> None:
    more = () if one.masks is None else MASKS
    for name in (*names, *more):
        mine, theirs = np.asarray(getattr(one, name)), np.asarray(getattr(other, name))
        assert mine.dtype == theirs.dtype, name
        assert mine.tobytes() == theirs.tobytes(), name


@pytest.mark.parametrize("section", [walk(), gym("Pendulum-v1")], ids=["walk", "pendulum"])
def test_workers_give_the_same_arrays_as_one_process(section) -> None:
    alone = make_vector_env(section, 3, 3)
    spread = WorkerVectorEnv(section, 3, 3, workers=2)
    held = spread.obs
    alone.reset()
    spread.reset()
    generator = np.random.default_rng(0)
    num_ended = 0
    for _ in range(60):
        check_alike(spread, alone)
        actions = actions_of(alone, generator)
        alone.step(actions)
        spread.step(actions)
        num_ended += alone.has_ended
    check_alike(spread, alone)
    assert num_ended > 2
    assert spread.obs is held
    assert digest_of(spread.state_dict()) == digest_of(alone.state_dict())
    assert spec_to_json(spread.spec) == spec_to_json(alone.spec)
    alone.close()
    spread.close()


def test_a_state_can_be_taken_up_by_another_number_of_workers() -> None:
    first = WorkerVectorEnv(walk(), 5, 1, workers=2)
    first.reset()
    generator = np.random.default_rng(0)
    for _ in range(17):
        first.step(actions_of(first, generator))
    state = first.state_dict()
    others = [WorkerVectorEnv(walk(), 5, 1, workers=1), make_vector_env(walk(), 5, 1), first]
    for env in others:
        env.load_state_dict(state)
        assert env.inexact_because() == []
        assert not env.cut.any()
    for _ in range(30):
        actions = actions_of(first, generator)
        for env in others:
            env.step(actions)
        check_alike(others[0], others[1])
        check_alike(others[2], others[1])
    assert digest_of(others[0].state_dict()) == digest_of(others[1].state_dict())
    for env in others:
        env.close()


@pytest.fixture(scope="module")
def two_workers() -> Iterator[WorkerVectorEnv]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry, "loaded_plugins", ["tests.envs.odd_envs"])
        env = WorkerVectorEnv(walk(), 3, 1, workers=2)
    yield env
    env.close()


@pytest.fixture
def shared(two_workers: WorkerVectorEnv) -> WorkerVectorEnv:
    """Three envs in two workers, at the beginning, for tests that leave the workers well."""
    two_workers.cut[:] = False
    two_workers.load_state_dict(make_vector_env(walk(), 3, 1).state_dict())
    two_workers.reset()
    return two_workers


def test_an_env_that_cannot_be_restored_is_cut_in_a_worker_too(shared: WorkerVectorEnv) -> None:
    env = shared
    env.step(np.ones(3, np.int64))
    state = env.state_dict()
    state["obs"][1] += 1
    env.load_state_dict(state)
    assert env.cut.tolist() == [False, True, False]
    assert "env 1, episode 0: " in env.inexact_because()[0]
    assert len(env.inexact_because()) == 1
    assert env.state_dict()["cut"].tolist() == [False, True, False]
    env.cut[:] = False
    env.step(np.ones(3, np.int64))
    assert env.state_dict()["cut"].tolist() == [False, False, False]
    assert env.state_dict()["episodes"].tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("abort", "SIGABRT(?s:.*)_make_trouble"), ("exit", "exit code 5")],
)
def test_an_env_that_ends_its_process_is_an_env_error(trouble: str, words: str) -> None:
    """Row 9 of the faults: an env that segfaults."""
    env = WorkerVectorEnv(walk(trouble, at=2), 4, 0, workers=2)
    pids = [worker.pid for worker in env._workers]
    env.reset()
    env.step(np.ones(4, np.int64))
    before = env.obs.copy()
    with pytest.raises(EnvError, match=rf"env 0, episode 0, step 2: .*envs 0 to 1, .*{words}"):
        env.step(np.ones(4, np.int64))
    assert env.obs.tobytes() == before.tobytes(), "nothing may be half-stored"
    assert not any(psutil.pid_exists(pid) for pid in pids)
    with pytest.raises(LudusError, match="closed"):
        env.step(np.ones(4, np.int64))


def test_an_env_that_hangs_is_an_env_error() -> None:
    env = WorkerVectorEnv(walk("hang", at=3), 2, 0, workers=2, timeout=300.0)
    env.reset()
    for _ in range(2):
        env.step(np.ones(2, np.int64))
    env._timeout = 0.2  # only what hangs has to be late
    with pytest.raises(EnvError, match=r"step 3: .*envs 0 to 0, did not answer within 0.2 seconds"):
        env.step(np.ones(2, np.int64))


def test_an_env_that_raises_is_the_same_error_as_in_one_process() -> None:
    told = []
    for make in (make_vector_env, lambda *given: WorkerVectorEnv(*given, workers=1)):
        env = make(walk("raise", at=2), 2, 0)
        env.reset()
        env.step(np.ones(2, np.int64))
        with pytest.raises(EnvError, match="ValueError: no more") as error:
            env.step(np.ones(2, np.int64))
        told.append((str(error.value), error.value.field, error.value.index))
        env.close()
    assert told[0] == told[1]


def test_actions_of_another_shape_or_type_are_refused(shared: WorkerVectorEnv) -> None:
    with pytest.raises(LudusError, match=r"actions are \(2,\) of int64, wanted \(3,\) whole"):
        shared.step(np.ones(2, np.int64))
    with pytest.raises(LudusError, match="of float64, wanted"):
        shared.step(np.ones(3))


def test_an_env_that_cannot_be_made_is_a_config_error() -> None:
    section = gym("CartPole-v1").model_copy(update={"kwargs": {"colour": 3}})
    with pytest.raises(ConfigError, match="colour"):
        WorkerVectorEnv(section, 2, 0, workers=1)
    with pytest.raises(ConfigError, match="3 workers cannot share 2 envs"):
        WorkerVectorEnv(walk(), 2, 0, workers=3)


def test_nothing_is_left_after_closing() -> None:
    before = len(os.listdir("/proc/self/fd"))
    others = psutil.Process().children()
    env = WorkerVectorEnv(walk(), 2, 0, workers=2)
    env.reset()
    env.close()
    env.close()
    assert len(os.listdir("/proc/self/fd")) == before
    assert psutil.Process().children() == others


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_a_spec_survives_the_way_through_spec_json(name: str) -> None:
    env = make_vector_env(gym(name), 1, 0)
    plain = spec_to_json(env.spec)
    again = spec_from_json(plain)
    assert spec_to_json(again) == plain
    assert (again.obs_dtype, again.obs_shape) == (env.spec.obs_dtype, env.spec.obs_shape)
    assert type(again.action) is type(env.spec.action)
    env.close()


def test_how_long_a_step_may_take_is_in_the_config_and_may_change_on_resume(
    tmp_path: Path,
) -> None:
    changes = {"settings.workers": 1, "steps.max_opt_steps": 12}

    class Interrupt:
        def after_train_step(self, run: Any) -> None:
            run.interrupted = run.counters["opt_steps"] == 4

    def fit(seconds: float, *, resume: bool) -> Any:
        trainer: Any = ludus.build_trainer(small("dqn", step_timeout_seconds=seconds, **changes))
        trainer.add(Interrupt())
        result = trainer.fit(root=str(tmp_path), name="run", resume=resume)
        assert trainer.env._timeout == seconds
        return result

    assert fit(30.0, resume=False).status == "interrupted"
    result = fit(45.0, resume=True)
    assert (result.status, result.exact, result.counters["opt_steps"]) == (
        "finished",
        "expected",
        12,
    )


def test_where_envs_stood_can_be_asked_once_their_processes_are_gone() -> None:
    env = WorkerVectorEnv(walk(), 2, 0, workers=1)
    env.reset()
    for _ in range(3):
        env.step(actions_of(env, np.random.default_rng(0)))
    expected = digest_of(env.state_dict())
    env.close()
    assert digest_of(env.state_dict()) == expected
    env.close()
    assert digest_of(env.state_dict()) == expected


def test_a_trainer_with_workers_hands_out_its_state_after_fit(tmp_path: Path) -> None:
    config = small("dqn", **{"settings.workers": 1, "steps.max_opt_steps": 12})
    trainer: Any = ludus.build_trainer(config)
    trainer.fit(root=str(tmp_path), name="first")
    state = trainer.state_dict()
    other: Any = ludus.build_trainer(config.replace(**{"settings.workers": 0}))
    other.fit(trainer_state=state, root=str(tmp_path), name="second")
    assert digest_of(other.state_dict()["env"]) == digest_of(state["env"])


def test_a_state_that_workers_cannot_take_is_refused_by_key(shared: WorkerVectorEnv) -> None:
    env = shared
    env.step(actions_of(env, np.random.default_rng(0)))
    state = env.state_dict()
    journal = state["journal"]
    wrong = {**state, "journal": {**journal, "actions": journal["actions"].astype(np.float16)}}
    with pytest.raises(CheckpointError, match="'journal/actions' is float16"):
        env.load_state_dict(wrong)
    with pytest.raises(CheckpointError, match="'episodes' holds a number out of its range"):
        env.load_state_dict({**state, "episodes": state["episodes"] - 7})
