"""A loop that fits can be entered again and again: each time it begins anew, with the data as it is."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus import Trainer
from ludus.core import Repeat, Run, Stateful
from ludus.core.runtime import InMemoryRuntime
from ludus.store import checkpoint
from ludus.store.places import open_storage
from ludus.supervised.trainer import BaseTrainer
from ludus.testing.trainers import run_trainer
from tests.conftest import modules_in
from tests.supervised.conftest import Tiny

toy_active: Any = modules_in("contracts/trainers")["toy_active"]


def lines(place: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (place / "metrics.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Any]]:
    """Return what each round of the toy active learner did, step by step."""
    root = tmp_path_factory.mktemp("runs")
    seen: dict[str, list[Any]] = {"rates": [[], [], []], "epochs": [0, 0, 0], "best": []}

    class Seen:
        def after_train_step(self, run: Run) -> None:
            seen["rates"][run.round("round")].append(trainer.fitting.learning_rate(run))

        def after_epoch(self, run: Run) -> None:
            seen["epochs"][run.round("round")] += 1

        def after_test(self, run: Run) -> None:
            seen["best"].append(trainer.best()["counters"]["epoch"])

    trainer = toy_active.make()
    trainer.add(Seen())
    trainer.fit(root=str(root), name="whole")
    return seen


def test_each_round_goes_through_the_batches_there_are_when_it_begins(rounds: Any) -> None:
    # Two more examples a round make one more batch; early stopping ends the second and third round.
    assert rounds["epochs"] == [4, 3, 2]
    assert [len(rates) for rates in rounds["rates"]] == [4 * 2, 3 * 3, 2 * 4]


def test_the_schedule_starts_over_for_the_length_of_each_round(rounds: Any) -> None:
    for rates, num_batches in zip(rounds["rates"], (2, 3, 4), strict=True):
        total = 4 * num_batches
        # What is seen after a step is the rate of the next.
        expected = [0.3 * (1 - (step + 1) / total) for step in range(len(rates))]
        assert rates == pytest.approx(expected)


def test_patience_and_the_best_model_are_those_of_the_round(rounds: Any) -> None:
    # The second round is better than all of the first; in the third the first epoch is the best.
    assert rounds["best"] == [3, 5, 7]


def test_a_kill_inside_a_round_keeps_where_it_was_entered_and_how_long_its_epochs_were(
    tmp_path: Path,
) -> None:
    run_trainer(toy_active.make, tmp_path, "killed", kill_at=24)
    storage = open_storage(tmp_path / "killed")
    saved = checkpoint.read(storage, checkpoint.numbers(storage)[-1]).state
    assert saved["run"]["cursor"][1:4] == [["round", 1, 3], ["epoch", 1, 4], ["step", 1, 3]]
    assert saved["fitting"] == {"begun_at": 8, "num_batches": 3}
    run_trainer(toy_active.make, tmp_path, "killed")
    steps = [line["opt_steps"] for line in lines(tmp_path / "killed")]
    assert steps[-1] == 8 + 9 + 8


class Twice(BaseTrainer):
    """The supervised trainer's own loop, entered twice."""

    leave_after: int | None = None
    """Leave the first round after so many batches."""

    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        self.waiting: list[int] = []
        self.rates: list[float] = []

    def plan(self) -> Repeat:
        rounds = Repeat(name="round", times=2, counter="iteration", body=(self.fitting.loop(),))
        return Repeat(name="train", times=1, body=(rounds,))

    def parts(self) -> Mapping[str, Stateful]:
        return {**super().parts(), "fitting": self.fitting}

    def train_step(self, batch: Any, batch_idx: int) -> Any:
        if batch_idx == 0:
            assert not any(one.any() for one in self.flat.gradients), "a gradient was left over"
        return super().train_step(batch, batch_idx)

    def after_train_step(self, run: Run) -> None:
        self.waiting.append(self.update.num_gathered)
        self.rates.append(self.fitting.learning_rate(run))
        if len(self.waiting) == self.leave_after:
            run.leave("epoch", "enough of this round")


def walked(config: Any, **attributes: Any) -> Twice:
    trainer = Twice(config)
    for name, value in attributes.items():
        setattr(trainer, name, value)
    trainer.fit(runtime=InMemoryRuntime)
    return trainer


def test_max_steps_counts_from_each_entry(tiny: Tiny) -> None:
    # Seven batches an epoch: the limit falls in the second epoch of each round.
    trainer = walked(tiny(max_opt_steps=9))
    assert trainer.run.counters["opt_steps"] == 18
    assert trainer.run.counters["epoch"] == 4


def test_batches_that_wait_when_a_loop_is_left_are_no_part_of_the_next_ones_first_step(
    tiny: Tiny,
) -> None:
    trainer = walked(tiny(accumulate=3, max_epochs=1, evaluate_every_epochs=0), leave_after=2)
    # Seven batches make steps of 3, 3 and 1.
    assert trainer.waiting == [1, 2, 1, 2, 0, 1, 2, 0, 0]
    assert trainer.run.counters["opt_steps"] == 3
    assert trainer.update.num_counted == 0


def test_a_round_left_in_an_epoch_is_not_counted_in_the_means_of_the_next(tiny: Tiny) -> None:
    sums: list[int] = []

    class Means:
        def before_sum_up(self) -> None:
            sums.append(trainer.update.num_counted)

    trainer = Twice(tiny(max_epochs=1, evaluate_every_epochs=0))
    trainer.add(Means())
    trainer.leave_after = 2
    trainer.fit(runtime=InMemoryRuntime)
    assert sums == [106]


def test_the_supervised_loop_enters_with_a_schedule_of_its_own_each_time(tiny: Tiny) -> None:
    falling = {"kind": "linear", "warmup_steps": 0, "final": 0.0, "total_steps": None}
    trainer = walked(tiny(max_epochs=1, learning_rate_schedule=falling))
    first, second = trainer.rates[:7], trainer.rates[7:]
    assert first == second
    assert first[-1] == 0.0 < first[0]


def test_what_is_renewed_is_what_it_was_each_time_the_loop_is_entered(tiny: Tiny) -> None:
    begun: list[dict[str, torch.Tensor]] = []

    class Forgetful(Twice):
        def prepare(self, *, max_steps: int | None) -> None:
            super().prepare(max_steps=max_steps)
            self.fitting.renew(self.model, self.optimizer)

        def train_step(self, batch: Any, batch_idx: int) -> Any:
            if self.run.round("epoch") == 0 and batch_idx == 0:
                begun.append({k: v.clone() for k, v in self.model.state_dict().items()})
            return super().train_step(batch, batch_idx)

    Forgetful(tiny()).fit(runtime=InMemoryRuntime)
    first, second = begun
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_a_run_that_ended_by_its_steps_is_made_longer(tiny: Tiny, tmp_path: Path) -> None:
    Trainer(tiny(max_epochs=3, max_steps=9)).fit(root=str(tmp_path), name="run")
    longer = Trainer(tiny(max_epochs=3, max_opt_steps=12))
    longer.fit(root=str(tmp_path), name="run", resume=True)
    assert longer.run.counters["opt_steps"] == 12
