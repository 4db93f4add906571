"""Runs with every further optimizer: killed, resumed, evaluated at the right weights, refused elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus import Trainer
from ludus.core.errors import ConfigError
from ludus.testing import trainers
from tests.nn.test_more_optimizers import FREE, MUON, RADAM, RMSPROP
from tests.supervised.conftest import Tiny, history, lines

OPTIMIZERS: dict[str, dict[str, Any]] = {
    "rmsprop": {**RMSPROP, "momentum": 0.5, "centered": True, "weight_decay": 0.01},
    "radam": {**RADAM, "weight_decay": 0.01, "decoupled": True},
    "muon": {**MUON, "adamw_parameters": []},
    "schedule_free_adamw": FREE,
}
each_kind = pytest.mark.parametrize("kind", OPTIMIZERS)


def make(tiny: Tiny, kind: str, **changes: Any) -> Trainer:
    best = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}
    options = {"settings.checkpoint.every_stages": 3, "max_grad_norm": 1.0, **best}
    return Trainer(
        tiny(optimizer=OPTIMIZERS[kind], accumulate=2, max_epochs=3, **options, **changes)
    )


@each_kind
def test_a_killed_run_ends_as_if_never_killed(kind: str, tiny: Tiny, tmp_path: Path) -> None:
    trainers.check_kill_anywhere(lambda: make(tiny, kind), tmp_path, max_kills=2)
    trainers.check_all_state_is_declared(lambda: make(tiny, kind), tmp_path)
    inert = [
        "model",
        "update",
        "train_data",
        "write_log",
        "milestones",
        "run",
        "random",
        "logger",
        "judge",
    ]
    trainers.check_negative_controls(lambda: make(tiny, kind), tmp_path, inert=inert)


@each_kind
@pytest.mark.parametrize("engine", ["eager", "tape", "compiled"])
def test_every_engine_learns(
    kind: str, engine: str, tiny: Tiny, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.setattr("ludus.nn.engines.compiled.BACKEND", "eager")
    torch._dynamo.reset()
    trainer = Trainer(tiny(optimizer=OPTIMIZERS[kind], engine=engine, max_epochs=5))
    losses = history(trainer.fit(root=str(tmp_path)).run_dir, "train/epoch_loss")
    assert losses[-1] < 0.8 * losses[0]


def test_a_schedule_free_run_evaluates_and_keeps_the_mean(tiny: Tiny, tmp_path: Path) -> None:
    trainer = make(tiny, "schedule_free_adamw")
    result = trainer.fit(root=str(tmp_path))
    network = {name: one.clone() for name, one in trainer.model.state_dict().items()}
    (mean,) = trainer.optimizer.evaluated
    kept, flat = trainer.weights(), trainer.flat.by_name([mean])
    assert all(torch.equal(kept[name], flat[name]) for name in flat)
    assert not any(torch.equal(kept[name], network[name]) for name in flat)
    # What was evaluated last is what these weights give.
    found = trainer.evaluate_weights(kept)
    assert trainer.evaluate(trainer.evaluators["test"]) == found
    state = trainer.state_dict()
    again = trainer.weights_of(state)
    assert all(torch.equal(again[name], kept[name]) for name in kept)
    told = [
        line
        for line in lines(result.run_dir, "events.jsonl")
        if line["event"] == "evaluated_weights"
    ]
    assert "schedule_free_adamw" in str(told)


def test_the_mean_has_no_mean(tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match="set 'ema_decay' to null"):
        tiny(optimizer=FREE, ema_decay=0.9)


def test_rl_takes_further_kinds_but_the_one_that_evaluates_other_weights() -> None:
    for kind in ("dqn", "ppo", "fused_ppo", "vanilla_ppo"):
        assert ludus.example(kind).replace(optimizer=OPTIMIZERS["radam"])
        with pytest.raises(ConfigError, match="which only supervised and active runs can have"):
            ludus.example(kind).replace(optimizer=FREE)


def test_an_unknown_kind_is_told_with_the_nearest(tiny: Tiny) -> None:
    with pytest.raises(ConfigError, match=r"'optimizer.kind'.*Did you mean 'rmsprop'"):
        tiny(optimizer={**OPTIMIZERS["rmsprop"], "kind": "rmspop"})
