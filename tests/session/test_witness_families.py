"""Real runs, killed and resumed, are proved by what they pass again; a network with hidden state is found."""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ludus
from ludus.testing.trainers import run_trainer
from tests.faults.small_run import small_config
from tests.rl.small import small

HIDDEN = ctypes.c_double(0.0)


class Hiding(nn.Module):
    """Scales by a number that lies outside of Python and moves with every batch it learns from."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 10)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if self.training:
            HIDDEN.value += 0.01
        return self.linear(inputs.flatten(1)) * (1.0 + HIDDEN.value)


def supervised(*, is_hiding: bool = False) -> Any:
    HIDDEN.value = 0.0
    config = small_config(log_every_opt_steps=1, engine="eager")
    trainer = ludus.Trainer(config.replace(**{"settings.checkpoint.every_stages": 4}))
    if is_hiding:
        torch.manual_seed(0)
        trainer.set_model(Hiding())
    return trainer


def dqn() -> Any:
    return ludus.build_trainer(small("dqn", **{"settings.checkpoint.every_stages": 40}))


@pytest.mark.parametrize(
    ("make", "kill"), [(supervised, 7), (dqn, 39 + 33)], ids=["supervised", "dqn"]
)
def test_a_run_that_is_killed_and_resumed_is_proved_and_its_weights_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Any, kill: int
) -> None:
    monkeypatch.setattr("ludus.session.digests.EVERY", 1)
    run_trainer(make, tmp_path, "whole")
    assert run_trainer(make, tmp_path, "run", kill_at=kill) is None
    result = run_trainer(make, tmp_path, "run")
    assert result is not None
    assert (result.status, result.exact) == ("finished", "proved")
    for name in ("metrics.jsonl", "weights.jsonl"):
        whole = (tmp_path / "whole" / name).read_bytes()
        assert (tmp_path / "run" / name).read_bytes() == whole
    digests = [json.loads(line)["weights"] for line in whole.splitlines()]
    assert len({json.dumps(digest) for digest in digests}) > 3, "they move"


def test_a_network_with_state_outside_of_python_is_found_by_a_resume(tmp_path: Path) -> None:
    def make() -> Any:
        return supervised(is_hiding=True)

    assert run_trainer(make, tmp_path, "run", kill_at=7) is None
    result = run_trainer(make, tmp_path, "run")
    assert result is not None
    assert result.exact == "no"
    (reason,) = [one for one in result.inexact_because if "resumed at boundary 4" in one]
    assert "it wrote validation/epoch_loss" in reason
    assert "at opt_steps 3 where it had written" in reason
