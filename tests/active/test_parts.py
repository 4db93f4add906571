"""The parts of an active run by themselves: the pool, the learn set, what decides to stop."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ludus.active.asking import Progress
from ludus.active.config import StoppingConfig
from ludus.active.examples import PoolExamples
from ludus.active.learn_set import LearnSet
from ludus.active.oracle import Answers, Labels
from ludus.active.pool import Pool
from ludus.core.errors import CheckpointError, LudusError
from ludus.core.services import MemoryJournal
from ludus.core.states import StateError
from ludus.data.batches.splits import Examples


def pool_with(*rows: int, labels: list[int] | None = None, size: int = 10) -> Pool:
    pool = Pool(size, dtype=torch.int64)
    pool.ask(torch.tensor(rows, dtype=torch.int64), number=0)
    if labels is not None:
        pool.answer(torch.tensor(labels))
    return pool


@pytest.mark.parametrize("rows", [[3], [10], [-1], [5, 5]])
def test_a_row_is_asked_for_once_and_is_one_of_the_pool(rows: list[int]) -> None:
    pool = pool_with(3, 4)
    with pytest.raises(LudusError, match="choose among 8 rows without a label, each once"):
        pool.ask(torch.tensor(rows), number=1)
    assert pool.asked.tolist() == [3, 4]
    assert pool.unasked.tolist() == [0, 1, 2, 5, 6, 7, 8, 9]


def test_all_open_rows_are_answered_at_once_and_in_their_order() -> None:
    pool = pool_with(7, 2)
    for labels in ([1], [1, 2, 0]):
        with pytest.raises(LudusError, match=f"{len(labels)} labels were given for 2 open rows"):
            pool.answer(torch.tensor(labels))
    pool.answer(torch.tensor([1, 2]))
    assert (pool.labelled.tolist(), pool.labels.tolist(), pool.open.tolist()) == (
        [7, 2],
        [1, 2],
        [],
    )


@pytest.mark.parametrize(
    "change",
    [
        {"labels": torch.tensor([0, 1, 2])},
        {"asked": torch.tensor([7, 7])},
        {"asked": torch.tensor([7, 10])},
        {"rounds": torch.tensor([0])},
        {"more": 1},
    ],
)
def test_a_pool_takes_no_state_that_cannot_be(change: dict[str, Any]) -> None:
    pool, other = pool_with(7, 2, labels=[1, 2]), Pool(10, dtype=torch.int64)
    with pytest.raises(StateError):
        other.load_state_dict({**pool.state_dict(), **change})
    assert not len(other.asked)
    with pytest.raises(CheckpointError, match="10 examples now, and had 9"):
        other.load_state_dict({**pool.state_dict(), "size": 9})
    other.load_state_dict(pool.state_dict())
    assert other.labels.tolist() == [1, 2]


def test_of_two_answers_to_a_row_the_last_counts_and_none_is_lost() -> None:
    journal = MemoryJournal("labels")
    answers = Answers(lambda: journal, Labels(num_classes=3))
    answers.put([4, 6], [0, 1])
    answers.put([4], [2])
    assert answers.known() == {4: 2, 6: 1}
    assert answers.tensor(torch.tensor([6, 4]), answers.known()).tolist() == [1, 2]
    with pytest.raises(LudusError, match=r"the label of row 5 is 1\.5"):
        answers.put([7, 5], [0, 1.5])
    # The one beside it was paid for, and is kept.
    assert answers.known() == {4: 2, 6: 1, 7: 0}


def progress(**changes: Any) -> Progress:
    own = {"max_labels": None, "target_accuracy": None, "stable_share": 0.75, "stable_rounds": 2}
    return Progress(StoppingConfig(**{**own, **changes}), 4)


def test_a_round_that_is_not_stable_begins_the_count_anew() -> None:
    one, other = torch.tensor([0, 1, 2, 0]), torch.tensor([1, 1, 0, 0])
    heard = progress()
    shares = [heard.update(None, said) for said in (one, one, other, other)]
    assert shares == [0.0, 1.0, 0.5, 1.0]
    assert (heard.num_stable, heard.reason) == (1, "")
    assert heard.update(None, torch.tensor([1, 1, 0, 2])) == 0.75
    assert heard.reason == "75.0% of the pool is predicted as before, 2 times in a row"
    again = progress()
    again.load_state_dict(heard.state_dict())
    assert again.update(None, torch.tensor([1, 1, 0, 2])) == 1.0


def test_the_accuracy_that_was_asked_for_is_enough() -> None:
    heard = progress(stable_share=None, target_accuracy=0.9)
    heard.update(0.89, None)
    assert heard.reason == ""
    heard.update(0.9, None)
    assert heard.reason.startswith("the accuracy on validation data is 0.9000")


def learn_set(count: int, *, batch_size: int, drop_last: bool) -> LearnSet:
    examples = PoolExamples(
        Examples(torch.arange(20.0)[:, None]), device=torch.device("cpu"), workers=0, seed=1
    )
    pool = pool_with(*range(count), labels=[row % 3 for row in range(count)], size=20)
    return LearnSet(examples, pool, batch_size=batch_size, drop_last=drop_last, seed=1, first=5)


@pytest.mark.parametrize(
    ("count", "drop_last", "sizes"),
    [
        (10, False, [4, 4, 2]),
        (10, True, [4, 4]),
        (3, True, [3]),
        (3, False, [3]),
        (8, True, [4, 4]),
    ],
)
def test_an_epoch_goes_through_all_labels_but_for_what_is_dropped(
    count: int, drop_last: bool, sizes: list[int]
) -> None:
    data = learn_set(count, batch_size=4, drop_last=drop_last)
    assert data.length() == len(sizes)
    orders = []
    for epoch in range(2):
        data.start(epoch)
        batches = []
        while not data.has_ended():
            batches.append(data.next())
        assert [len(inputs) for inputs, _ in batches] == sizes
        rows = [int(row) for inputs, _ in batches for row in inputs[:, 0]]
        labels = [int(label) for _, found in batches for label in found]
        assert labels == [row % 3 for row in rows]
        assert len(rows) == len(set(rows)) <= count
        orders.append(rows)
    assert orders[0] != orders[1]


def test_a_learn_set_stands_where_it_stood() -> None:
    data, other = (learn_set(10, batch_size=4, drop_last=False) for _ in range(2))
    data.start(3)
    data.next()
    other.load_state_dict(data.state_dict())
    assert torch.equal(other.next()[0], data.next()[0])
    with pytest.raises(StateError):
        other.load_state_dict({"epoch": 3, "position": 4})
