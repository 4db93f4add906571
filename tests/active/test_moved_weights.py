"""Rounds with a mean of the iterates, a plateau that starts over, and a script's optimizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.testing import trainers
from tests.active.conftest import small_active
from tests.nn.test_more_optimizers import FREE
from tests.supervised.conftest import lines
from tests.supervised.test_learning_rates import PLATEAU
from tests.supervised.test_own_optimizers import Signs

SAVED: dict[str, Any] = {"settings.checkpoint.every_stages": 3, "ema_decay": None, "engine": "auto"}
BEST = {"evaluation.metric": "train/epoch_loss", "evaluation.mode": "max", "evaluation.keep": 1}


def averaged() -> Any:
    return ludus.build_trainer(
        small_active(round_start="warm", optimizer=FREE, max_epochs=3, **BEST, **SAVED)
    )


def on_plateaus(start: str = "warm") -> Any:
    section = {**PLATEAU, "min_delta": 1e6, "cooldown": 0}
    return ludus.build_trainer(
        small_active(round_start=start, learning_rate_schedule=section, max_epochs=4, **SAVED)
    )


def given() -> Any:
    trainer: Any = ludus.build_trainer(small_active(round_start="cold", max_epochs=3, **SAVED))
    trainer.set_optimizer(Signs, lr=0.02)
    return trainer


@pytest.mark.parametrize("make", [averaged, on_plateaus, given])
def test_a_killed_run_ends_as_if_never_killed(make: Any, tmp_path: Path) -> None:
    trainers.check_kill_anywhere(make, tmp_path, max_kills=2)
    trainers.check_all_state_is_declared(make, tmp_path)


@pytest.mark.parametrize("start", ["warm", "cold"])
def test_every_round_starts_over_with_its_plateau(start: str, tmp_path: Path) -> None:
    trainer = on_plateaus(start)
    result = trainer.fit(root=str(tmp_path))
    rates: dict[int, list[float]] = {}
    for line in lines(result.run_dir):
        if "train/learning_rate" in line:
            rates.setdefault(line.get("round", 0), []).append(line["train/learning_rate"])
    initial = trainer.config.optimizer.learning_rate
    assert len(rates) > 1
    for found in rates.values():
        assert found[0] == pytest.approx(initial)
        assert found[-1] == pytest.approx(initial / 4)
