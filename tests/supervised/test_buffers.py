"""What a model holds beside its parameters is in its checkpoints and in the weights that are kept."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from ludus import Model, Trainer
from ludus.core.errors import LudusError
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from ludus.testing import trainers
from tests.nn.test_gate import between, supervised
from tests.rl.odd_networks import RunningMean, SavedCounter

BEST = {"evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1}


def network() -> nn.Module:
    torch.manual_seed(1)
    frozen = nn.Linear(8, 8).requires_grad_(False)
    fleeting = RunningMean(8, persistent=False)
    return between(nn.BatchNorm1d(8), frozen, fleeting, nn.Dropout(0.2), SavedCounter())


def make() -> Trainer:
    return supervised(
        network(), engine="eager", max_epochs=3, ema_decay=0.9, **BEST, evaluation__patience=None,
        log_every_opt_steps=1,
    )  # fmt: skip


def test_a_run_with_all_that_a_module_may_hold_is_exact(tmp_path: Path) -> None:
    trainers.check_kill_anywhere(make, tmp_path, max_kills=3)


def test_the_kept_best_comes_to_the_same_score_again(tmp_path: Path) -> None:
    """With the running mean of the weights, and buffers that torch would not save."""
    trainer = make()
    trainer.fit(root=str(tmp_path), name="run")
    best: Any = trainer.best()
    weights, _ = read_model(LocalStorage(tmp_path / "run"), best["model"])
    other = make()
    other.prepare(max_steps=None)
    other.model.load_state_dict(weights)
    found = other.evaluators["validation"].evaluate(other.model)[0]
    assert found == best["score"]
    assert other.model.module[5].calls > 0  # type: ignore[union-attr, operator]


def test_a_model_comes_back_from_its_directory_with_everything(tmp_path: Path) -> None:
    model = Model(network())
    model.train()
    for _ in range(3):
        model(torch.randn(4, 13))
    model.save_model(tmp_path / "model")
    other = Model(network())
    other.load_model(tmp_path / "model")
    torch.testing.assert_close(other.state_dict(), model.state_dict(), rtol=0, atol=0)
    x = torch.randn(4, 13)
    assert torch.equal(other.eval()(x), model.eval()(x))


def test_a_buffer_of_another_size_is_refused() -> None:
    model = Model(network())
    state = copy.deepcopy(model.state_dict())
    state["3.mean"] = torch.zeros(1)
    with pytest.raises(LudusError, match=r"do not fit this model.*3\.mean"):
        model.load_state_dict(state)
