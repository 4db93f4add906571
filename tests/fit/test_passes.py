"""Passes over rows in memory: every row once, in an order by (seed, pass), and accuracy in batches."""

from __future__ import annotations

import pytest
import torch

from ludus.core.errors import Interrupted
from ludus.fit.passes import Passes, accuracy

COLUMNS = [torch.arange(9.0)[:, None], torch.arange(9) % 2]


def test_one_row_that_is_left_over_joins_the_batch_before() -> None:
    for size, expected in ((4, [4, 5]), (2, [2, 2, 2, 3]), (5, [5, 4]), (1, [1] * 9), (16, [9])):
        passes = Passes(COLUMNS, size, seed=0, name="order")
        found = [passes(0, index) for index in range(passes.count)]
        assert [len(y) for _, y in found] == expected
        assert sorted(torch.cat([x for x, _ in found]).flatten().tolist()) == [*range(9)]
        assert all(torch.equal(x.flatten().long() % 2, y) for x, y in found)


def test_the_order_depends_on_seed_name_and_pass_alone() -> None:
    def order(number: int, seed: int = 0, name: str = "order") -> list[float]:
        found: list[float] = (
            Passes(COLUMNS, 9, seed=seed, name=name)(number, 0)[0].flatten().tolist()
        )
        return found

    assert order(3) == order(3)
    assert len({tuple(one) for one in (order(3), order(4), order(3, 1), order(3, 0, "other"))}) == 4


def test_accuracy_is_over_all_rows_whatever_the_size_of_batches() -> None:
    inputs_N1, labels_N = COLUMNS
    for size in (1, 4, 9, 100):
        # Every row is said to be of class 1.
        found = accuracy(
            lambda columns: torch.tensor([[0.0, 1.0]]).expand(len(columns[0]), 2),
            [inputs_N1], labels_N, size, is_interrupted=lambda: False,
        )  # fmt: skip
        assert found == pytest.approx(4 / 9)


def test_accuracy_ends_at_an_interrupt() -> None:
    with pytest.raises(Interrupted):
        accuracy(
            lambda columns: columns[0], [COLUMNS[0]], COLUMNS[1], 4, is_interrupted=lambda: True
        )
