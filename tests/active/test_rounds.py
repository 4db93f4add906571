"""What a round begins anew, and by which head and in which order candidates are compared."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import ludus
from ludus.active.selection import leep
from ludus.core.surroundings import Bare
from ludus.nn.model import Model
from tests.active.conftest import small_active
from tests.active.test_candidates import network, trainer_of
from tests.supervised.conftest import MLP


def test_early_stopping_ends_the_epochs_of_a_round_and_the_next_begins_anew(tmp_path: Path) -> None:
    stopping = {"metric": "validation/epoch_loss", "patience": 2, "mode": None, "min_delta": 1.0}
    config = small_active(early_stopping=stopping, max_epochs=9, best_model=None)
    result = ludus.build_trainer(config).fit(root=str(tmp_path))
    # Nothing is ever better by 1: the first epoch of each round, and two in vain.
    assert (result.status, result.counters["round"]) == ("finished", 3)
    assert result.counters["epoch"] == 3 * 3


def test_of_equal_candidates_the_first_is_taken() -> None:
    trainer = trainer_of(model=None, selection="logme", max_rounds=1)
    trainer.set_model([network(1), network(1)])
    trainer.fit(around=Bare)
    assert trainer.candidates.scores[0] == trainer.candidates.scores[1]
    assert trainer.candidates.chosen == 0


def test_leep_is_that_of_the_head_that_a_candidate_was_trained_with(tmp_path: Path) -> None:
    five = {**MLP, "widths": [6], "outputs": 5}
    torch.manual_seed(2)
    model = Model(five)
    model.save_model(tmp_path / "five")
    one = {"name": "five", "model": five, "weights": str(tmp_path / "five")}
    trainer = trainer_of(
        model=None, candidates=[one], new_head=3, selection="leep", max_rounds=1, max_epochs=1
    )
    trainer.fit(around=Bare)
    with torch.no_grad():
        said = model(trainer.examples.inputs(trainer.pool.labelled)).softmax(1)
    assert trainer.candidates.scores == pytest.approx([leep(said, trainer.pool.labels)], abs=1e-6)
