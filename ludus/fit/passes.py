"""Passes over examples in memory: shuffled batches of rows, and the accuracy of answers in batches.

Shapes: N rows, C classes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ludus.core.errors import Interrupted
from ludus.seeds import generator


class Passes:
    """The batches of each pass: every row once, in an order that depends on (seed, name, pass) alone.

    A last batch of one row joins the one before: normalisation over a batch is undefined for it.
    """

    def __init__(self, columns: Sequence[Tensor], size: int, *, seed: int, name: str) -> None:
        """`columns` hold one row for each example; `name` names the order among the draws of a run."""
        self._columns, self._size, self._seed, self._name = columns, size, seed, name
        self._num_rows = len(columns[0])
        has_one_left = self._num_rows % size == 1 and self._num_rows > size > 1
        self.count = -(-self._num_rows // size) - has_one_left
        """The number of batches in a pass."""
        self._pass = -1
        self._order_N = torch.zeros(0, dtype=torch.int64)

    def __call__(self, number: int, index: int) -> list[Tensor]:
        """Return the columns of one batch of the pass of this number."""
        if self._pass != number:
            source = generator(self._seed, self._name, number)
            order_N = torch.randperm(self._num_rows, generator=source)
            self._order_N = order_N.to(self._columns[0].device, non_blocking=True)
            self._pass = number
        last = None if index == self.count - 1 else (index + 1) * self._size
        places_N = self._order_N[index * self._size : last]
        return [column.index_select(0, places_N) for column in self._columns]


@torch.no_grad()
def accuracy(
    answer: Callable[[Sequence[Tensor]], Tensor],
    columns: Sequence[Tensor],
    labels_N: Tensor,
    size: int,
    *,
    is_interrupted: Callable[[], bool],
) -> float:
    """Return the share of rows whose largest logit is that of their label, in batches of this size.

    `answer` returns the (N, C) logits of a batch of the columns.
    """
    right = torch.zeros((), device=labels_N.device)
    for first in range(0, len(labels_N), size):
        if is_interrupted():
            raise Interrupted
        logits_NC = answer([column[first : first + size] for column in columns])
        right += (logits_NC.argmax(1) == labels_N[first : first + size]).sum()
    return float(right) / len(labels_N)
