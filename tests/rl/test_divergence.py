"""Row 10 of the faults in RL: numbers that are not finite end the run in order, and spoil nothing."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ludus
from ludus.core.errors import Diverged
from ludus.nn.engines import compiled
from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from tests.rl.small import PRIORITISED, small
from tests.rl.spying import Spy
from tests.supervised.conftest import lines

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn": ("dqn", {}),
    "dqn with priorities": ("dqn", {"replay.prioritised": PRIORITISED}),
    "iqn": ("iqn", {}),
    "sac": ("sac", {}),
    "ppo": ("ppo", {}),
}
each_kind = pytest.mark.parametrize(("kind", "changes"), KINDS.values(), ids=KINDS.keys())


def all_tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, Tensor):
        return [tree]
    values = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    return [tensor for value in values for tensor in all_tensors(value)]


def assert_nothing_is_spoilt(trainer: Any, run_dir: Path) -> None:
    """Every weight, target and moment is finite: in memory, in checkpoints, in each kept model."""
    states = [part.state_dict() for part in trainer.agent.learned().values()]
    storage = LocalStorage(run_dir)
    saved = checkpoint.read_newest(storage, damaged=pytest.fail)
    assert saved is not None
    states.append(saved.state["agent"]["networks"])
    states += [read_model(storage, f"models/{name}")[0] for name in storage.names("models")]
    for tensor in all_tensors(states):
        assert torch.isfinite(tensor).all()


def saved_often(kind: str, changes: dict[str, Any], **more: Any) -> Any:
    return small(kind, **changes, **more, **{"settings.checkpoint.every_stages": 3})


class Poison:
    """Spoils one number of the batch of one update, and looks at the weights around it."""

    def __init__(self, trainer: Any, bad: float, at: int) -> None:
        self._agent, self._bad, self._at = trainer.agent, bad, at
        self._step = trainer.agent.step
        trainer.agent.step = self.step
        self.has_moved: list[bool] = []

    def step(self, batch: Any, num_opts: int, learning_rate: float) -> Any:
        if num_opts == self._at:
            batch = batch._replace(rows=batch.rows.clone())
            batch.rows[2, 0] = self._bad
        before = [tensor.clone() for tensor in self._weights()]
        errors = self._step(batch, num_opts, learning_rate)
        pairs = zip(before, self._weights(), strict=True)
        self.has_moved.append(any(not a.equal(b) for a, b in pairs))
        return errors

    def _weights(self) -> list[Tensor]:
        learned = self._agent.learned()
        return all_tensors([learned[name].state_dict() for name in learned if name != "target"])


class SetPoison:
    """A callback that poisons the agent once it is there."""

    def __init__(self, trainer: Any, bad: float, at: int) -> None:
        self._given = (trainer, bad, at)

    def before_train(self) -> None:
        self.poison = Poison(*self._given)


@each_kind
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_bad_update_is_skipped_and_the_run_stops_at_the_next_record(
    tmp_path: Path, kind: str, changes: dict[str, Any], bad: float
) -> None:
    """The fifth update is spoilt; those around it are made. Priorities are noticed to be bad at once."""
    trainer: Any = ludus.build_trainer(saved_often(kind, changes))
    callback = SetPoison(trainer, bad, at=4)
    trainer.add(callback)
    with pytest.raises(
        Diverged, match=r"(train/(loss|grad_norm) became|a TD error .* is) .* lower"
    ):
        trainer.fit(root=str(tmp_path), name="run")
    # PPO makes six updates before its record; the others record at the seventh, which evaluates.
    opts = 5 if changes else 6 if kind == "ppo" else 7
    assert callback.poison.has_moved == [number != 4 for number in range(opts)]
    assert_nothing_is_spoilt(trainer, tmp_path / "run")
    if not changes:
        written = lines(tmp_path / "run")[-1]
        assert written["opt_steps"] == trainer.run.counters["opt_steps"] == opts
        assert not math.isfinite(float(written["train/grad_norm"]))
        assert "eval/return_mean" not in written, "what has diverged was evaluated"
        assert trainer.best() is None or trainer.best()["counters"]["opt_steps"] < 5
    events = lines(tmp_path / "run", "events.jsonl")
    assert events[-1]["event"] == "failed"
    assert events[-1]["reason"].startswith("Diverged: ")


@each_kind
@pytest.mark.filterwarnings("ignore:(overflow|invalid value) encountered:RuntimeWarning")
def test_a_learning_rate_of_1e30_ends_the_run_with_finite_weights(
    tmp_path: Path, kind: str, changes: dict[str, Any]
) -> None:
    config = saved_often(kind, changes, **{"optimizer.learning_rate": 1e30})
    trainer: Any = ludus.build_trainer(config)
    with pytest.raises(Diverged, match=r"(lower the|a lower) learning rate"):
        trainer.fit(root=str(tmp_path), name="run")
    assert_nothing_is_spoilt(trainer, tmp_path / "run")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script_method:DeprecationWarning")
def test_a_traced_update_skips_a_bad_batch_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "BACKEND", "eager")
    trainer: Any = ludus.build_trainer(saved_often("ppo", {}, engine="compiled"))
    callback = SetPoison(trainer, math.nan, at=4)
    trainer.add(callback)
    with pytest.raises(Diverged, match="lower the learning rate"):
        trainer.fit(root=str(tmp_path), name="run")
    assert callback.poison.has_moved.count(False) == 1
    assert_nothing_is_spoilt(trainer, tmp_path / "run")


@pytest.mark.covers("004-D5")
def test_an_evaluation_that_is_not_finite_is_told_and_never_the_best(tmp_path: Path) -> None:
    spy = Spy(small("dqn"), [math.nan, -3.4e38, math.inf, math.nan])
    result = spy.run(tmp_path)
    assert result.best["score"] == -3.4e38
    assert result.best["counters"]["opt_steps"] == 14
    assert spy.told == [
        "the evaluation at opt_step 7 gave nan: it is never the best and uses patience",
        "the evaluation at opt_step 21 gave inf: it is never the best and uses patience",
    ]
    assert spy.events.count("save best") == 1
    # It uses patience, in RL as elsewhere, and reaches no target.
    assert spy.trainer.judge.score_states["return"].num_bad == 1
    assert result.reason is None


def test_without_a_finite_evaluation_there_is_no_best(tmp_path: Path) -> None:
    spy = Spy(small("ppo", **{"evaluation.target": 5.0}), [math.nan, math.inf])
    result = spy.run(tmp_path)
    assert result.best is None
    assert result.status == "finished"
    assert not (Path(result.run_dir) / "models" / "best").exists()
    assert len(spy.told) == 2


@pytest.mark.parametrize("kind", ["dqn", "iqn", "sac", "ppo"])
def test_a_learning_rate_that_rises_beyond_all_bounds_takes_no_weight_with_it(kind: str) -> None:
    """The optimizer's own rate is small, so that only the schedule shows where it will go."""
    rising = {"kind": "linear", "warmup_steps": 0, "final": 1e3, "total_steps": None}
    sgd = {"kind": "sgd", "learning_rate": 0.01, "momentum": 0.0, "nesterov": False}
    optimizer = {**sgd, "weight_decay": 1.0}
    trainer: Any = ludus.build_trainer(
        small(kind, learning_rate_schedule=rising, optimizer=optimizer, engine="tape")
    )
    trainer.prepare(max_steps=None)
    trainer.close()
    agent = trainer.agent
    *inputs, numbers = agent.example_inputs()
    for _ in range(30):
        agent.execute(*inputs, torch.full_like(numbers, 1e3))
    for name, part in agent.learned().items():
        # Where the gradient overflows first, weights stay finite without it.
        assert name == "target" or part.gradient_step.is_steep, name
        for weight in part.state_dict().get("weights", {}).values():
            assert torch.isfinite(weight).all(), name
