"""What a script may ask of a StepRLTrainer; the order of its loop and its rates are in test_orders."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import ludus
from ludus import Logger
from ludus.core import Run
from ludus.core.errors import ConfigError, StorageError
from ludus.core.runtime import InMemoryRuntime
from ludus.envs.vector import make_vector_env
from ludus.rl.sampling.sampler import Episodes
from ludus.rl.sampling.step_processor import OneStep
from ludus.rl.step_trainer import StepRLTrainer
from ludus.session import saver
from ludus.store.checkpoint import digest_of
from ludus.store.local import LocalStorage
from tests.rl.random_walks import walk_config
from tests.rl.small import PRIORITISED, small
from tests.rl.spying import Spy
from tests.supervised.conftest import lines

STEPS = (
    "update_every_env_steps", "log_every_opt_steps", "evaluate_every_opt_steps",
    "keep_every_opt_steps", "log_agent_info_every_opt_steps",
    "log_compute_cost_every_opt_steps", "max_opt_steps",
)  # fmt: skip


@pytest.mark.covers("004-M1")
def test_the_config_counts_every_interval_in_steps() -> None:
    """The env, the step processor (n_step), the buffer, and five numbers; the directory is fit's."""
    config = ludus.example("dqn")
    assert tuple(config.steps.model_dump()) == STEPS
    assert {"env", "n_step", "replay"} <= set(config.model_dump())
    trainer = ludus.build_trainer(config)
    assert isinstance(trainer, ludus.StepRLTrainer)
    assert isinstance(config, ludus.TrainerConfig)


@pytest.mark.covers("004-M2")
def test_train_takes_a_recorder_and_an_evaluator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    class Judge:
        num_asked = 0

        def evaluate(self, agent: Any) -> tuple[float, dict[str, float]]:
            assert not isinstance(agent, StepRLTrainer)
            self.num_asked += 1
            return 1.0, {"eval/mine": 2.0}

    trainer: Any = ludus.build_trainer(small("dqn"))
    recorder, evaluator = Logger({"backends": []}), Judge()
    result = trainer.train(None, recorder, evaluator)
    assert trainer.logger is recorder
    assert evaluator.num_asked == 3
    assert [line["eval/mine"] for line in lines(result.run_dir) if "eval/mine" in line] == [2.0] * 3


@pytest.mark.covers("004-M3")
def test_a_run_begins_from_nothing(tmp_path: Path) -> None:
    """Counters at 0, an empty buffer, fresh episodes, no best: whatever comes first is better."""
    seen: list[Any] = []

    class First:
        def before_collect(self, run: Run) -> None:
            agent, sampler = trainer.agent, trainer.sampler
            size = trainer.replay_buffer.size
            seen.append((run.counters["env_steps"], run.counters["opt_steps"], size))
            seen.append((sampler.num_env_steps, agent.is_training, trainer.judge.best))

    trainer: Any = ludus.build_trainer(small("dqn"))
    trainer.add(First())
    trainer.fit(root=str(tmp_path))
    assert seen[:2] == [(0, 0, 0), (0, True, None)]


@pytest.mark.covers("004-M5")
def test_a_failed_save_is_logged_not_raised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk is full while the first models are to be written; they are kept once it is not."""
    write, failed = saver.write_model, []

    def full(storage: Any, name: str, weights: Any, note: Any) -> None:
        if not failed:
            failed.append(name)
            raise StorageError(f"{name} could not be written: no space left")
        write(storage, name, weights, note)

    monkeypatch.setattr(saver, "write_model", full)
    result = ludus.build_trainer(small("dqn")).fit(root=str(tmp_path))
    assert result.status == "finished"
    told = [e for e in lines(result.run_dir, "events.jsonl") if e["event"] == "checkpoint_failed"]
    assert [event["reason"] for event in told] == [
        f"{failed[0]} could not be written: no space left"
    ]
    assert {"11", "22", "best"} <= set(LocalStorage(Path(result.run_dir)).names("models"))


@pytest.mark.covers("004-M6")
def test_what_is_learned_from_is_what_was_seen_done_and_found(tmp_path: Path) -> None:
    """o_t is kept in the step processor; rows hold (o_t, a_t, r_t, discount, o_t+1)."""
    config = small("dqn").replace(env=walk_config(length=8), gamma=0.9)
    trainer: Any = ludus.build_trainer(config)
    seen: list[tuple[Any, ...]] = []

    class Watch:
        def before_train(self) -> None:
            env, step = trainer.env, trainer.env.step

            def watched(actions: Any) -> None:
                before = env.obs.copy()
                step(actions)
                seen.append(
                    (before, actions.copy(), env.rewards.copy(), env.terminated.copy(),
                     env.next_obs.copy())
                )  # fmt: skip

            env.step = watched

    trainer.add(Watch())
    trainer.fit(root=str(tmp_path))
    buffer, layout = trainer.replay_buffer, trainer.agent.layout
    batch = layout.split(buffer._rows)
    assert buffer.total > buffer.capacity == 60
    newest = seen[-20:]
    first = (buffer.total - 60) % 60
    order = [(first + number) % 60 for number in range(60)]
    columns = [np.concatenate([step[index] for step in newest]) for index in range(5)]
    np.testing.assert_array_equal(batch.obs[order], columns[0])
    # The env numbers its actions from -1.
    np.testing.assert_array_equal(batch.actions[order, 0], columns[1] + 1)
    np.testing.assert_allclose(batch.rewards[order], columns[2], rtol=1e-6)
    np.testing.assert_allclose(batch.discounts[order], np.where(columns[3], 0, 0.9), rtol=1e-6)
    np.testing.assert_array_equal(batch.next_obs[order], columns[4])
    assert columns[3].any()


@pytest.mark.covers("004-M6")
def test_a_sampler_can_be_used_by_itself() -> None:
    """SyncSampler joins an agent, envs, a step processor and a buffer, for any number of envs."""

    class Agent:
        def act(self, obs: Any, masks: Any, num_env_steps: int) -> Any:
            return np.full(len(obs), num_env_steps % 3)

        def to_env(self, actions: Any) -> Any:
            return actions - 1

    trainer: Any = ludus.build_trainer(small("dqn").replace(env=walk_config(length=4)))
    trainer.prepare(max_steps=None)
    layout = trainer.agent.layout
    env = make_vector_env(walk_config(length=4), 2, 0)
    buffer = ludus.ReplayBuffer(layout, 100, seed=0)
    sampler = ludus.SyncSampler(env, OneStep(2, layout, 0.9), Episodes(2, 10), None)
    sampler.begin()
    for _ in range(6):
        sampler.sample_and_push(Agent(), buffer)  # type: ignore[arg-type]
    assert (sampler.num_env_steps, buffer.size) == (12, 12)
    assert sampler.episodes.metrics()["rollout/ep_len_mean"] == 4
    assert sampler.episodes.metrics()["rollout/episodes"] == 2


@pytest.mark.covers("004-M7")
def test_the_agent_is_judged_without_exploring_and_explores_again_after(
    tmp_path: Path,
) -> None:
    """By its own evaluator: episodes by index, the mean return, the agent's mode as it was."""
    trainer: Any = ludus.build_trainer(small("dqn"))
    modes: list[tuple[str, bool]] = []

    class Watch:
        def before_train(self) -> None:
            agent = trainer.agent
            for name in ("act", "act_greedy"):
                self.watch(agent, name, getattr(agent, name))

        def watch(self, agent: Any, name: str, method: Any) -> None:
            def watched(*arguments: Any) -> Any:
                modes.append((name, agent.is_training))
                return method(*arguments)

            setattr(agent, name, watched)

    trainer.add(Watch())
    trainer.fit(root=str(tmp_path))
    assert set(modes) == {("act", True), ("act_greedy", False)}


@pytest.mark.covers("004-D1")
def test_intervals_of_0_mean_never(tmp_path: Path) -> None:
    never = dict.fromkeys(
        (
            "steps.log_every_opt_steps",
            "steps.evaluate_every_opt_steps",
            "steps.keep_every_opt_steps",
        ),
        0,
    )
    result = ludus.build_trainer(small("dqn", **never)).fit(root=str(tmp_path))
    # What was learned is still written once, at the end.
    assert [line["opt_steps"] for line in lines(result.run_dir)] == [24]
    assert result.best is None
    assert not LocalStorage(Path(result.run_dir)).names("models")


@pytest.mark.covers("004-D2")
def test_a_run_without_a_directory_keeps_no_model_and_does_not_mind(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    trainer: Any = ludus.build_trainer(small("dqn"))
    logger = Logger({"backends": []})
    trainer.set_logger(logger)
    result = trainer.fit(runtime=InMemoryRuntime)
    assert result.counters["opt_steps"] == 24
    assert trainer.best()["score"] > 0
    assert not list(tmp_path.iterdir())


@pytest.mark.covers("004-D3")
def test_a_run_always_ends() -> None:
    """A length of 0 is refused, and so is one in which nothing would ever be learned."""
    with pytest.raises(ConfigError, match="max_opt_steps"):
        small("dqn", **{"steps.max_opt_steps": 0})
    epochs = {
        "max_env_steps": 50, "log_every_epochs": 0, "evaluate_every_epochs": 0,
        "keep_every_epochs": 0, "steps_per_epoch": 2,
        "updates_per_env_step": 1.0, "max_opt_steps": None,
    }  # fmt: skip
    with pytest.raises(ConfigError, match="it would never learn"):
        small("dqn", counted_in="epochs", learning_starts=60, epochs=epochs)


@pytest.mark.covers("004-D3")
def test_a_counter_beyond_the_end_ends_the_run_too(tmp_path: Path) -> None:
    """The end is tested by >=, so it cannot be missed."""
    spy = Spy(small("dqn"))

    class Grown:
        def before_train(self, run: Run) -> None:
            run.counters["opt_steps"] = 100

    spy.trainer.add(Grown())
    result = spy.run(tmp_path)
    assert (result.status, result.counters["opt_steps"]) == ("finished", 100)
    assert spy.events == ["before_train", "after_train"]


@pytest.mark.covers("004-D4")
def test_counters_are_exact_beyond_what_float32_holds(tmp_path: Path) -> None:
    large = 2**24 + 1
    spy = Spy(small("dqn", engine="tape", **{"steps.max_opt_steps": large + 1}))

    class Grown:
        def before_train(self, run: Run) -> None:
            spy.trainer.sampler.num_env_steps = 4 * large
            run.counters["opt_steps"] = large - 4

    spy.trainer.add(Grown())
    result = spy.run(tmp_path)
    assert result.counters["opt_steps"] == large + 1
    written = lines(result.run_dir)[-1]
    assert written["opt_steps"] == large + 1
    assert written["train/n_updates"] == large + 1
    assert written["env_steps"] == result.counters["env_steps"] > 4 * large


@pytest.mark.covers("004-M4")
@pytest.mark.parametrize("kind", ["dqn", "ppo"])
def test_the_best_is_the_highest_return_and_its_weights_are_kept(tmp_path: Path, kind: str) -> None:
    spy = Spy(small(kind), [1.0, 3.0, 2.0])
    result = spy.run(tmp_path)
    written = [(line["opt_steps"], line["eval/return_mean"])
               for line in lines(result.run_dir) if "eval/return_mean" in line]  # fmt: skip
    assert [score for _, score in written][:2] == [1.0, 3.0]
    assert result.best["score"] == 3.0
    assert result.best["counters"]["opt_steps"] == written[1][0]
    assert (Path(result.run_dir) / result.best["model"]).is_dir()


@pytest.mark.covers("004-D5")
def test_the_lowest_first_score_is_the_best_until_a_better_one(tmp_path: Path) -> None:
    lowest = float(np.finfo(np.float32).min)
    spy = Spy(small("dqn"), [lowest, lowest, math.nan])
    result = spy.run(tmp_path)
    assert result.best["score"] == lowest
    assert result.best["counters"]["opt_steps"] == 7
    assert (Path(result.run_dir) / "models" / "best").exists()
    assert len(spy.told) == 1


@pytest.mark.covers("001-D7", "004-D6")
@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_a_run_goes_on_where_it_was_interrupted(tmp_path: Path, kind: str) -> None:
    """Counters, best, buffer, optimizer and generators: the ends are the same bytes."""

    class Interrupt:
        def __init__(self, at: int) -> None:
            self.at = at

        def after_train_step(self, run: Run) -> None:
            run.interrupted = run.counters["opt_steps"] == self.at

    def fit(name: str, at: int, **options: Any) -> Any:
        trainer: Any = ludus.build_trainer(small(kind))
        trainer.add(Interrupt(at))
        return trainer, trainer.fit(root=str(tmp_path), name=name, **options)

    straight, ended = fit("straight", -1)
    _, cut = fit("broken", 17)
    assert cut.status == "interrupted"
    resumed, result = fit("broken", -1, resume=True)
    assert (result.status, result.exact) == ("finished", "expected")
    assert result.counters == ended.counters
    assert result.best == ended.best
    for name, part in straight.all_parts().items():
        other = resumed.all_parts()[name]
        assert digest_of(dict(part.state_dict())) == digest_of(dict(other.state_dict())), name
    written = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("broken", "straight")]
    assert written[0] == written[1]


@pytest.mark.covers("004-D9")
@pytest.mark.parametrize("per", [None, PRIORITISED])
def test_a_buffer_of_one_place_and_several_envs_work(tmp_path: Path, per: Any) -> None:
    changes = {"replay.prioritised": per, "replay.capacity": 1, "batch_size": 1}
    trainer: Any = ludus.build_trainer(small("dqn", **changes))
    result = trainer.fit(root=str(tmp_path))
    assert result.counters["opt_steps"] == 24
    assert trainer.replay_buffer.size == 1


@pytest.mark.covers("004-D9")
def test_draws_do_not_depend_on_global_generators(tmp_path: Path) -> None:
    def weights(name: str) -> Any:
        trainer: Any = ludus.build_trainer(small("dqn", **{"replay.prioritised": PRIORITISED}))

        class Disturb:
            def before_train_step(self) -> None:
                if name == "disturbed":
                    np.random.random(3)
                    torch.rand(3)

        trainer.add(Disturb())
        trainer.fit(root=str(tmp_path), name=name)
        return trainer.agent.weights()

    torch.testing.assert_close(weights("calm"), weights("disturbed"), rtol=0, atol=0)


@pytest.mark.covers("004-S1")
def test_the_size_of_the_weights_is_recorded_at_its_own_interval(tmp_path: Path) -> None:
    changes = {"steps.log_agent_info_every_opt_steps": 5, "steps.evaluate_every_opt_steps": 0}
    spy = Spy(small("sac", **changes))
    result = spy.run(tmp_path)
    told = {line["opt_steps"]: line for line in lines(result.run_dir) if "agent/actor_norm" in line}
    assert list(told) == [5, 10, 15, 20]
    last = spy.trainer.agent.learned()["critics"].flat.vectors[0].norm()
    assert told[20]["agent/critics_norm"] == pytest.approx(float(last), rel=0.1)
    # Metrics since the last record are in it, as in any other.
    assert all("train/loss" in line for line in told.values())


@pytest.mark.covers("004-S1", "004-D7")
def test_what_acting_and_learning_cost_is_written_beside_the_metrics(tmp_path: Path) -> None:
    """Never while nothing has been learned, and never among the metrics, which are exact."""
    changes = {"steps.log_compute_cost_every_opt_steps": 6, "steps.evaluate_every_opt_steps": 0}
    result = ludus.build_trainer(small("dqn", **changes)).fit(root=str(tmp_path), name="costs")
    plain = ludus.build_trainer(small("dqn", **{"steps.evaluate_every_opt_steps": 0}))
    plain.fit(root=str(tmp_path), name="plain")
    timing = [line for line in lines(result.run_dir, "timing.jsonl") if "collect_ms" in line]
    assert [line["opt_steps"] for line in timing] == [6, 12, 18, 24]
    assert all(line["collect_ms"] > 0 and line["train_step_ms"] > 0 for line in timing)
    for line in lines(result.run_dir):
        assert not any(name.endswith("_ms") for name in line)
    assert not any("collect_ms" in line for line in lines(tmp_path / "plain", "timing.jsonl"))
    assert [stage.name for stage in plain.plan().body[0].body[1].body] == [
        "train_step",
        "evaluate",
        "record",
        "save",
    ]


@pytest.mark.covers("001-S12")
def test_a_stage_on_a_gpu_is_timed_by_its_own_clock_which_is_read_when_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ludus.session import stage_times

    class Event:
        clock, read = 0.0, 0

        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = Event.clock

        def query(self) -> bool:
            return False

        def synchronize(self) -> None:
            Event.read += 1

        def elapsed_time(self, other: Any) -> float:
            assert Event.read
            return other.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(stage_times, "_MAX_PENDING", 3)
    measured = stage_times.StageTimes(torch.device("cuda"))

    def work(run: Any) -> None:
        Event.clock += 2.0

    stage = measured.timed("fit", work)
    for _ in range(5):
        stage(Run())
    assert Event.read == 0
    assert len(measured._pending) == 3
    assert measured.take() == pytest.approx({"fit_ms": 2.0})
    assert Event.read == 1
    assert measured.take() == {}


@pytest.mark.covers("004-S1")
def test_a_cost_is_the_mean_since_it_was_last_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    from ludus.session import stage_times

    now = iter([0.0, 0.002, 1.0, 1.004, 2.0, 2.001])
    monkeypatch.setattr(stage_times.time, "perf_counter", lambda: next(now))
    measured = stage_times.StageTimes()
    work = measured.timed("collect", lambda run: {"x": 1.0})
    assert work(Run()) == work(Run()) == {"x": 1.0}
    assert measured.take() == pytest.approx({"collect_ms": 3.0})
    work(Run())
    assert measured.take() == pytest.approx({"collect_ms": 1.0})
    assert measured.take() == {}
