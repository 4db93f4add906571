"""Mistakes that were made once: resume, running means and second fits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import ludus
from ludus.core.errors import RunError
from tests.contracts.trainers.supervised import make


class Tied(nn.Module):
    """Two names for one matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(10, 10, bias=False)
        self.second = nn.Linear(10, 10, bias=False)
        self.into = nn.Linear(64, 10)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(self.into(x)))


def test_the_running_mean_of_tied_weights_is_saved_once_and_is_both(tmp_path: Path) -> None:
    trainer = make()
    trainer.set_model(Tied())
    trainer.fit(root=str(tmp_path))
    weights = trainer.weights()
    assert "second.weight" not in weights
    assert not torch.equal(weights["first.weight"], trainer.model.module.first.weight)
    trainer.model.load_state_dict(weights)
    assert torch.equal(weights["first.weight"], trainer.model.module.second.weight)


def test_what_decides_what_is_learned_may_not_change_on_resume(tmp_path: Path) -> None:
    make().fit(root=str(tmp_path), name="run")
    other = ludus.Trainer(make().config.replace(accumulate=2))
    with pytest.raises(RunError, match=r"accumulate 3 \(now 2\)"):
        other.fit(root=str(tmp_path), name="run", resume=True)


def test_a_second_fit_of_one_trainer_begins_with_fresh_weights(tmp_path: Path) -> None:
    class Nothing:
        def after_epoch(self) -> None: ...

    trainer = make()
    trainer.add(Nothing())
    trainer.fit(root=str(tmp_path), name="one")
    trainer.fit(root=str(tmp_path), name="two")
    lines = [(tmp_path / name / "metrics.jsonl").read_bytes() for name in ("one", "two")]
    assert lines[0] == lines[1]


def test_a_longer_run_says_that_it_is_not_the_run_it_would_have_been(tmp_path: Path) -> None:
    never = {"patience": None, "min_delta": 0.0, "stopping_metric": None}
    off = {f"evaluation.{key}": value for key, value in never.items()}
    config = make().config.replace(**off, max_epochs=1)
    assert ludus.Trainer(config).fit(root=str(tmp_path), name="run").exact
    longer = ludus.Trainer(config.replace(max_epochs=2))
    result = longer.fit(root=str(tmp_path), name="run", resume=True)
    assert result.counters["epoch"] == 2
    assert not result.exact
    assert "max_epochs" in result.inexact_because[0]
