"""Both plans, event by event, against the two loops as docs/origins.md has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.rl import trainer as rl_trainer
from ludus.rl.sampling import sampler
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from tests.rl.small import small
from tests.rl.spying import EpochHooks, Hooks, Spy, in_epochs, in_steps
from tests.supervised.conftest import lines

SCORES = [1.0, 1.0, 3.0, 2.0, 3.0, 3.5, 0.0]


def spy_of(config: Any, scores: Any = SCORES, *, epochs: bool = False) -> Spy:
    spy = Spy(config, scores)
    hooks = EpochHooks if epochs else Hooks
    spy.trainer.callbacks["spy"] = hooks(spy)
    return spy


PPO: dict[str, dict[str, int]] = {
    "as small": {},
    "never": {
        "log_every_epochs": 0,
        "evaluate_every_epochs": 0,
        "keep_every_epochs": 0,
    },
    "every epoch": {
        "log_every_epochs": 1,
        "evaluate_every_epochs": 1,
        "keep_every_epochs": 1,
    },
    "evaluations alone": {
        "log_every_epochs": 0,
        "evaluate_every_epochs": 3,
        "keep_every_epochs": 0,
    },
    "one update": {"num_epochs": 1, "minibatches": 1},
}


@pytest.mark.covers("000-M8", "000-M9")
@pytest.mark.parametrize("changes", PPO.values(), ids=PPO.keys())
def test_ppo_collects_updates_and_evaluates_in_that_order(tmp_path: Path, changes: Any) -> None:
    """after_step comes once, after all updates; the first epoch is never evaluated."""
    config = small("ppo", **changes)
    spy = spy_of(config, epochs=True)
    spy.run(tmp_path)
    expected = in_epochs(
        6,
        config.rollout_steps,
        lambda epoch: config.num_epochs * config.num_minibatches,
        evaluate_every_epochs=config.evaluate_every_epochs,
        log_every_epochs=config.log_every_epochs,
        keep_every_epochs=config.keep_every_epochs,
        scores=SCORES,
    )
    assert spy.events == list(expected)


def epochs_of(**changes: Any) -> dict[str, Any]:
    return {
        "max_env_steps": 60,
        "log_every_epochs": 2,
        "evaluate_every_epochs": 3,
        "keep_every_epochs": 4,
        "steps_per_epoch": 2,
        "updates_per_env_step": 1.0,
        "max_opt_steps": None,
    } | changes


OWED: dict[str, tuple[dict[str, Any], list[int]]] = {
    # Epochs of six env steps; learning starts at 20, so at 24 all of 24 updates are owed.
    "bursts": ({}, [0, 0, 0, 24, 6, 6, 6, 6, 6, 6]),
    "one step": (
        {"steps_per_epoch": 1, "max_env_steps": 30, "evaluate_every_epochs": 4},
        [0, 0, 0, 0, 0, 0, 21, 3, 3, 3],
    ),
    "fractions": (
        {"updates_per_env_step": 0.4, "max_env_steps": 48},
        [0, 0, 0, 9, 3, 2, 2, 3],
    ),
}


@pytest.mark.covers("000-M8", "000-S6", "000-D1", "000-D2")
@pytest.mark.parametrize(("changes", "updates"), OWED.values(), ids=OWED.keys())
def test_dqn_in_epochs_collects_updates_and_evaluates_in_that_order(
    tmp_path: Path, changes: dict[str, Any], updates: list[int]
) -> None:
    """No update before learning starts, then all that are owed, then as many as
    env steps were taken; an epoch counts its env steps once."""
    epochs = epochs_of(**changes)
    spy = spy_of(small("dqn", counted_in="epochs", epochs=epochs), epochs=True)
    result = spy.run(tmp_path)
    freqs = {
        name: epochs[name]
        for name in ("evaluate_every_epochs", "log_every_epochs", "keep_every_epochs")
    }
    count = epochs["steps_per_epoch"]
    expected = in_epochs(len(updates), count, updates.__getitem__, **freqs, scores=SCORES)
    assert spy.events == list(expected)
    assert result.counters["opt_steps"] == sum(updates)
    assert result.counters["env_steps"] == len(updates) * count * 3
    assert result.counters["epoch"] == len(updates)


STEPS: dict[str, dict[str, int]] = {
    "one env": {"num_envs": 1, "steps.update_every_env_steps": 1},
    "one env, every third step": {"num_envs": 1, "steps.update_every_env_steps": 3},
    "2 for 3": {"steps.update_every_env_steps": 2},
    "4 for 3": {"steps.update_every_env_steps": 4},
    "7 for 3": {"steps.update_every_env_steps": 7},
    "many at once": {"num_envs": 5, "steps.update_every_env_steps": 1},
    "learning at once": {"learning_starts": 0, "steps.update_every_env_steps": 2},
    "never": {
        "steps.log_every_opt_steps": 0,
        "steps.evaluate_every_opt_steps": 0,
        "steps.keep_every_opt_steps": 0,
    },
    "every time": {
        "steps.log_every_opt_steps": 1,
        "steps.evaluate_every_opt_steps": 1,
        "steps.keep_every_opt_steps": 1,
    },
    "evaluations alone": {"steps.log_every_opt_steps": 0, "steps.keep_every_opt_steps": 0},
    "long warm-up": {"learning_starts": 2000, "steps.max_opt_steps": 11},
}


@pytest.mark.covers("004-M4", "004-D1")
@pytest.mark.parametrize("changes", STEPS.values(), ids=STEPS.keys())
def test_a_step_acts_updates_evaluates_records_and_saves_in_that_order(
    tmp_path: Path, changes: Any
) -> None:
    """Nothing but collecting before learning starts; evaluate, best, record, save; the end exactly at
    max_opt_steps, also where several updates are due at once; an interval of 0 means never."""
    config = small("dqn", **changes)
    spy = spy_of(config)
    result = spy.run(tmp_path)
    expected = in_steps(config.num_envs, config.learning_starts, config.steps, SCORES)
    events = [event for event in spy.events if event not in ("before_step", "after_step")]
    assert events == [e for e in expected if e not in ("before_step", "after_step")]
    assert result.counters["opt_steps"] == config.steps.max_opt_steps
    assert result.counters["env_steps"] == config.num_envs * events.count("sample_and_push")


@pytest.mark.covers("004-M4")
@pytest.mark.parametrize(("interval", "first"), [(2, 20), (4, 20), (7, 21)])
def test_as_many_updates_as_multiples_of_the_interval(
    tmp_path: Path, interval: int, first: int
) -> None:
    """Each is made as soon as the envs, three steps at a time, have reached its multiple."""
    spy = spy_of(small("dqn", **{"steps.update_every_env_steps": interval}))
    spy.run(tmp_path)
    env_steps, updates = 0, []
    for event in spy.events:
        if event == "sample_and_push":
            env_steps += 3
        elif event.startswith("train_step"):
            updates.append(env_steps)
    multiples = [first + interval * number for number in range(24)]
    assert updates == [-(-multiple // 3) * 3 for multiple in multiples]


@pytest.mark.covers("004-M4")
def test_kept_models_hold_the_weights_of_their_moment(tmp_path: Path) -> None:
    """models/<opt_steps> and models/best; and the best is not just the last."""
    spy = spy_of(small("dqn"))
    result = spy.run(tmp_path)
    storage = LocalStorage(Path(result.run_dir))
    assert sorted(spy.kept) == ["11", "22", "best"]
    for name, weights in spy.kept.items():
        found, note = read_model(storage, f"models/{name}")
        assert found.keys() == weights.keys()
        for key, tensor in weights.items():
            assert found[key].equal(tensor)
        assert note["counters"]["opt_steps"] == (21 if name == "best" else int(name))
    assert result.best["score"] == 3.0
    last = spy.trainer.agent.weights()
    assert not all(tensor.equal(last[key]) for key, tensor in spy.kept["best"].items())


@pytest.mark.covers("004-M4")
def test_each_record_has_what_was_learned_since_the_one_before(tmp_path: Path) -> None:
    spy = spy_of(small("dqn"))
    result = spy.run(tmp_path)
    opts = [record.counters["opt_steps"] for record in spy.records]
    assert opts == [4, 7, 8, 12, 14, 16, 20, 21, 24]
    for record in spy.records:
        assert ("eval/return_mean" in record.scalars) == (record.counters["opt_steps"] % 7 == 0)
        assert {"train/loss", "train/grad_norm", "train/learning_rate"} <= record.scalars.keys()
        assert record.counters["env_steps"] > 0
    assert [line["opt_steps"] for line in lines(result.run_dir)] == opts


class Clock:
    """A clock that moves only where the test says so."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.covers("004-M7")
@pytest.mark.parametrize("kind", ["dqn", "ppo"])
def test_rates_begin_anew_at_each_record_and_leave_evaluations_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """A step of all envs takes 1 s, an update 2 s, an evaluation 1000 s."""
    clock = Clock()
    monkeypatch.setattr(rl_trainer, "time", clock)
    monkeypatch.setattr(sampler, "time", clock)

    class Slow(Spy):
        def evaluate(self, agent: Any) -> tuple[float, dict[str, float]]:
            clock.now += 1000
            return super().evaluate(agent)

    class Tick:
        def after_train_step(self) -> None:
            clock.now += 2

        def before_train(self) -> None:
            spy.watch(spy.trainer.sampler, "sample_and_push", self.tick)

        def tick(self, _: Any) -> str:
            clock.now += 1
            return "tick"

    steps = {
        "steps.update_every_env_steps": 3,
        "steps.evaluate_every_opt_steps": 2,
        "learning_starts": 6,
    }
    spy = Slow(small(kind, **(steps if kind == "dqn" else {})))
    spy.trainer.add(Tick())
    spy.run(tmp_path)
    if kind == "dqn":
        # The first record has two steps to the first update, and one to the second.
        assert spy.records[0].timing["fps"] == pytest.approx(9 / 7)
        assert spy.records[0].timing["opt_steps_per_sec"] == pytest.approx(2 / 7)
        for record in spy.records[1:]:
            assert record.timing["fps"] == pytest.approx(6 / 6)
            assert record.timing["opt_steps_per_sec"] == pytest.approx(2 / 6)
    else:
        for record in spy.records:
            assert record.timing["fps"] == pytest.approx(24 / 20)
            assert record.timing["opt_steps_per_sec"] == pytest.approx(6 / 20)
    assert spy.events.count("evaluate") > 1


def test_a_target_return_ends_the_run_in_order(tmp_path: Path) -> None:
    """What stands after the evaluation is skipped, but its record is written."""
    spy = spy_of(small("dqn", **{"evaluation.target": 3.0}))
    result = spy.run(tmp_path)
    assert result.counters["opt_steps"] == 21
    assert result.reason == "eval/return_mean reached 3, the target being 3"
    assert spy.events[-5:] == ["evaluate", "save best", "after_step", "write 21", "after_train"]
    assert torch.isfinite(torch.tensor(spy.records[-1].scalars["train/loss"]))


@pytest.mark.parametrize("kind", ["dqn", "ppo"])
def test_a_run_paused_in_an_evaluation_is_saved_and_evaluates_anew(
    tmp_path: Path, kind: str
) -> None:
    """Row 18 of the faults: nothing learned is lost, though the evaluation is given up; twice."""

    class Pause:
        def __init__(self, trainer: Any, opts: int) -> None:
            self.trainer, self.opts = trainer, opts

        def before_train(self, run: Any) -> None:
            act = self.trainer.agent.act_greedy

            def acted(*given: Any) -> Any:
                run.interrupted = run.counters["opt_steps"] == self.opts
                return act(*given)

            self.trainer.agent.act_greedy = acted

    def fit(name: str, opts: int, *, resume: bool = False) -> tuple[Any, Any]:
        trainer: Any = ludus.build_trainer(small(kind))
        trainer.add(Pause(trainer, opts))
        if resume:
            # The hook was called before the pause.
            trainer.open = lambda: trainer.callbacks["pause"].before_train(trainer.run)
        return trainer, trainer.fit(root=str(tmp_path), name=name, resume=resume)

    straight, ended = fit("straight", -1)
    opts = 18 if kind == "ppo" else 14
    for is_second in (False, True):
        _, paused = fit("paused", opts, resume=is_second)
        assert (paused.status, paused.counters["opt_steps"]) == ("interrupted", opts)
        assert len(list((tmp_path / "paused" / "checkpoints").iterdir())) == 1
    resumed, result = fit("paused", -1, resume=True)
    resumes = [e for e in lines(tmp_path / "paused", "events.jsonl") if e["event"] == "resumed"]
    assert [event["cursor"][-1][0] for event in resumes] == ["evaluate", "evaluate"]
    assert (result.status, result.exact, result.best) == ("finished", "expected", ended.best)
    for name, tensor in straight.agent.weights().items():
        assert tensor.equal(resumed.agent.weights()[name])
    written = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("paused", "straight")]
    assert written[0] == written[1]
