"""What a round learns from: all labels, in batches that any network can take, drawn anew in each epoch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import Dataset

import ludus
from ludus.active.examples import PoolExamples
from ludus.active.learn_set import LearnSet
from ludus.active.pool import Pool
from ludus.active.trainers.active import ActiveTrainer
from ludus.core.runtime import InMemoryRuntime
from ludus.data.batches.splits import Examples
from ludus.testing.trainers import check_kill_anywhere
from tests.active.conftest import small_active

INPUTS = torch.randn(40, 13, generator=torch.Generator().manual_seed(0))


class Noisy(Dataset[Any]):
    """Adds noise to each example; it may draw it from a generator of its own."""

    def __init__(self, own: np.random.Generator | None = None) -> None:
        self.own = own

    def __len__(self) -> int:
        return len(INPUTS)

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        noise = torch.randn(13) if self.own is None else torch.tensor(self.own.normal(size=13))
        return INPUTS[row] + noise.float(), int(INPUTS[row, 0] > 0)


def learn_set(source: Any, labels: int, *, workers: int = 0, **changes: Any) -> LearnSet:
    examples = PoolExamples(source, device=torch.device("cpu"), workers=workers, seed=1)
    pool = Pool(examples.size, dtype=torch.int64)
    pool.ask(torch.arange(labels), number=0)
    pool.answer(torch.arange(labels))
    options = {"batch_size": 4, "drop_last": False, "seed": 1, "first": 2, **changes}
    return LearnSet(examples, pool, **options)


def batches(data: LearnSet, epoch: int) -> list[tuple[Tensor, Tensor]]:
    data.start(epoch)
    found = []
    while not data.has_ended():
        found.append(data.next())
    assert len(found) == data.length()
    return found


def by_row(data: LearnSet, epoch: int) -> Tensor:
    """Return the inputs of an epoch in the order of their rows; the label of a row is its number."""
    found = batches(data, epoch)
    rows = torch.cat([labels for _, labels in found])
    return torch.cat([inputs for inputs, _ in found])[rows.argsort()]


@pytest.mark.parametrize(
    ("labels", "options", "sizes"),
    [
        (8, {}, [4, 4]),
        (9, {}, [4, 5]),
        (10, {}, [4, 4, 2]),
        (5, {}, [5]),
        (1, {}, [1]),
        (9, {"drop_last": True}, [4, 4]),
        (3, {"drop_last": True}, [3]),
        (3, {"batch_size": 1}, [1, 1, 1]),
    ],
)
def test_one_example_that_is_left_over_joins_the_batch_before_it(
    labels: int, options: dict[str, Any], sizes: list[int]
) -> None:
    data = learn_set(Examples(INPUTS, torch.zeros(40)), labels, **options)
    found = batches(data, 3)
    assert [len(given) for _, given in found] == sizes
    seen = torch.cat([given for _, given in found]).tolist()
    assert len(set(seen)) == sum(sizes)
    for inputs, given in found:
        assert torch.equal(inputs, INPUTS[given])


def test_batch_norm_learns_however_many_labels_there_are() -> None:
    trainer: Any = ludus.build_trainer(
        small_active(
            model=None,
            evaluation__keep=0,
            engine="eager",
            batch_size=6,
            initial_labels=6,
            queries=1,
        )
    )
    net = nn.Sequential(nn.Linear(13, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3))
    trainer.set_model(net)
    assert trainer.fit(runtime=InMemoryRuntime).status == "finished"
    # Two epochs of one batch each, with 6, 7 and 8 labels: only the last has two.
    assert trainer.run.counters["opt_steps"] == 2 + 2 + 4
    assert trainer.run.counters["examples"] == 2 * (6 + 7 + 8)


def test_training_sees_other_noise_in_each_epoch_and_a_strategy_sees_one() -> None:
    data = learn_set(Noisy(), 10)
    first, second = by_row(data, 0), by_row(data, 1)
    assert not (first == second).any()
    assert torch.equal(by_row(data, 0), first)
    # By its row alone, whatever else is in the batch.
    assert torch.equal(by_row(learn_set(Noisy(), 6), 0), first[:6])
    examples = data._examples
    streams = [list(examples.stream(torch.arange(9), batch_size=size)) for size in (4, 9)]
    seen = [torch.cat([inputs for _, inputs in one]) for one in streams]
    assert torch.equal(*seen)
    assert torch.equal(seen[0], examples.inputs(torch.arange(9)))
    assert not (seen[0] == first[:9]).any()


def test_workers_read_what_training_learns_from_and_move_no_generator() -> None:
    here, elsewhere = learn_set(Noisy(), 10), learn_set(Noisy(), 10, workers=1)
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert torch.equal(by_row(here, 2), by_row(elsewhere, 2))
    assert torch.equal(torch.get_rng_state(), before)
    # Taken up in the middle of the epoch.
    wanted = batches(here, 4)[1:]
    elsewhere.load_state_dict({"epoch": 4, "position": 1})
    for inputs, labels in wanted:
        found = elsewhere.next()
        assert torch.equal(found[0], inputs)
        assert torch.equal(found[1], labels)
    assert elsewhere.has_ended()
    elsewhere.close()


def noisy_trainer(source: Noisy, **changes: Any) -> ActiveTrainer:
    config = small_active(
        data=None,
        evaluate_every_epochs=0,
        evaluation__keep=0,
        calibration=None,
        engine="eager",
        **changes,
    )
    return ActiveTrainer(config, train_loader=source)


def test_a_data_set_with_a_generator_of_its_own_is_not_called_exact() -> None:
    trainer = noisy_trainer(Noisy(np.random.default_rng(0)), max_rounds=1)
    trainer.fit(runtime=InMemoryRuntime)
    told = (
        "the pool, a Noisy, asked twice for the same examples, gave different ones: it keeps a gen"
    )
    assert [one[: len(told)] for one in trainer.inexact_because()] == [told]
    trainer = noisy_trainer(Noisy(), max_rounds=1)
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.inexact_because() == []


@pytest.mark.covers("003-S2")
def test_a_run_on_examples_with_noise_resumes_exactly_from_anywhere(tmp_path: Path) -> None:
    def make() -> ActiveTrainer:
        return noisy_trainer(Noisy(), max_rounds=2, **{"settings.checkpoint.every_stages": 1})

    check_kill_anywhere(make, tmp_path, max_kills=3)


def test_labels_come_in_another_order_in_each_epoch_and_alike_in_the_same() -> None:
    def order(seed: int, epoch: int) -> list[int]:
        found = batches(learn_set(Examples(INPUTS, torch.zeros(40)), 20, seed=seed), epoch)
        return torch.cat([labels for _, labels in found]).tolist()

    orders = [order(1, 0), order(1, 1), order(1, 2), order(2, 0)]
    assert len({tuple(one) for one in orders}) == 4
    assert all(sorted(one) == list(range(20)) for one in orders)
    assert order(1, 2) == orders[2]
