"""What a round begins anew, and by which head and in which order candidates are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.active.asking import Asking, Progress
from ludus.active.config import StoppingConfig
from ludus.active.selection import leep
from ludus.core.runtime import InMemoryRuntime
from ludus.nn.model import Model
from tests.active.conftest import small_active
from tests.active.test_candidates import network, trainer_of
from tests.supervised.conftest import MLP


def test_early_stopping_ends_the_epochs_of_a_round_and_the_next_begins_anew(tmp_path: Path) -> None:
    stopping = {"evaluation.patience": 2, "evaluation.min_delta": 1.0}
    config = small_active(max_epochs=9, evaluation__keep=0, **stopping)
    result = ludus.build_trainer(config).fit(root=str(tmp_path))
    # Nothing is ever better by 1: the first epoch of each round, and two in vain.
    assert (result.status, result.counters["round"]) == ("finished", 3)
    assert result.counters["epoch"] == 3 * 3


def test_of_equal_candidates_the_first_is_taken() -> None:
    trainer = trainer_of(model=None, selection="logme", max_rounds=1)
    trainer.set_model([network(1), network(1)])
    trainer.fit(runtime=InMemoryRuntime)
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
    trainer.fit(runtime=InMemoryRuntime)
    with torch.no_grad():
        said = model(trainer.examples.inputs(trainer.pool.labelled)).softmax(1)
    assert trainer.candidates.scores == pytest.approx([leep(said, trainer.pool.labels)], abs=1e-6)


def test_each_round_draws_by_a_generator_of_its_own() -> None:
    """Of a pool that stays the same: of one that shrinks even one generator draws otherwise each time."""

    class RunExactness:
        size, num_labelled = 30, 0
        unasked, labelled, labels = torch.arange(30), torch.empty(0), torch.empty(0)

        def ask(self, rows: Any, *, number: int) -> None:
            asked.append(rows.tolist())

    class First:
        def choose(self, view: Any, count: int) -> Any:
            drawn.append(torch.rand(3, generator=view.generator).tolist())
            return view.rows[:count]

    class Round:
        def __init__(self, number: int) -> None:
            self.number = number

        def round(self, loop: str) -> int:
            return self.number

    asked: list[list[int]] = []
    drawn: list[list[float]] = []
    rest: Any = None
    pool: Any = RunExactness()
    strategy: Any = First()
    asking = Asking(
        small_active(initial_labels=0, queries=8), rest, pool, strategy=strategy, oracle=rest,
        answers=rest, progress=rest, scorer=lambda: rest,
    )  # fmt: skip
    for number in (0, 1, 2, 1):
        run: Any = Round(number)
        asking.query(run)
    assert len({tuple(rows) for rows in asked}) == len({tuple(one) for one in drawn}) == 3
    assert (asked[1], drawn[1]) == (asked[3], drawn[3])


def test_predictions_are_compared_with_those_of_the_round_before() -> None:
    stopping = StoppingConfig(
        max_labels=None, target_accuracy=None, stable_share=0.9, stable_rounds=2
    )
    progress = Progress(stopping, size=4)
    one, other = torch.tensor([0, 1, 2, 0]), torch.tensor([1, 2, 0, 1])
    said = [one, other, other, one, one, torch.tensor([0, 1, 2, 1])]
    assert [progress.update(None, said_N) for said_N in said] == [0.0, 0.0, 1.0, 0.0, 1.0, 0.75]
    assert progress.reason == ""
    progress.update(None, said[-1])
    progress.update(None, said[-1])
    assert "100.0% of the pool is predicted as before, 2 times in a row" in progress.reason
