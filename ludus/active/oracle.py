"""What an oracle is, and the journal that its answers pass through: no label is asked for twice or lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from ludus.active.examples import PoolExamples
from ludus.config.base import StrictConfig
from ludus.config.sections import registered
from ludus.core import Run
from ludus.core.errors import LudusError

OracleSection = Annotated[SerializeAsAny[StrictConfig], registered("oracle")]

JOURNAL = "labels"
"""The journal of all answers: a record holds `rows` and their `labels`."""

Put = Callable[[Sequence[int], Sequence[Any]], None]
"""Keeps answers: rows, and a label for each. They are safe when it returns."""


class Oracle(Protocol):
    """Answers what is asked, now or later."""

    def answer(self, rows: Tensor, examples: PoolExamples, put: Put, *, run: Run) -> None:
        """Put the labels of these rows, or of some; a run pauses until all of them are there."""


class Labels:
    """What may be a label: a class, or a number."""

    def __init__(self, *, num_classes: int | None) -> None:
        """`num_classes` is None where labels are numbers."""
        self.num_classes = num_classes
        self.dtype = torch.float32 if num_classes is None else torch.int64

    def checked(self, row: int, label: object) -> int | float:
        """Return the label of a row, or raise LudusError if it cannot be one."""
        number: Any = label.item() if hasattr(label, "item") else label
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if self.num_classes is None:
            if is_number and abs(number) < float("inf"):
                return float(number)
            raise LudusError(f"the label of row {row} is {number!r}; give a finite number")
        if not is_number or number != number // 1 or not 0 <= number < self.num_classes:
            raise LudusError(
                f"the label of row {row} is {number!r}; the classes of this run are the whole numbers from"
                f" 0 to {self.num_classes - 1}"
            )
        return int(number)


class Answers:
    """All answers of a run, by row, as its journal has them."""

    def __init__(self, run: Run, labels: Labels) -> None:
        self._run, self._labels = run, labels

    def known(self) -> dict[int, Any]:
        """Return the label of every row that was ever answered; the last answer counts."""
        journal = self._run.journal(JOURNAL)
        found: dict[int, Any] = {}
        for key in journal.keys():  # noqa: SIM118 - a Journal is no mapping
            found |= _pairs(journal.get(key) or {}, key)
        return found

    def put(self, rows: Sequence[int], labels: Sequence[Any]) -> None:
        """Keep answers, once they are known to be labels."""
        checked = [self._labels.checked(row, one) for row, one in zip(rows, labels, strict=True)]
        journal = self._run.journal(JOURNAL)
        journal.put(f"answer-{len(journal.keys())}", {"rows": [*rows], "labels": checked})

    def tensor(self, rows: Tensor, known: Mapping[int, Any]) -> Tensor:
        """Return the labels of rows that are all known."""
        found = [self._labels.checked(row, known[row]) for row in rows.tolist()]
        return torch.tensor(found, dtype=self._labels.dtype)


def _pairs(record: Mapping[str, Any], key: str) -> dict[int, Any]:
    rows, labels = record.get("rows"), record.get("labels")
    is_right = isinstance(rows, list) and isinstance(labels, list) and len(rows) == len(labels)
    if not is_right or not all(isinstance(row, int) for row in rows or ()):
        raise LudusError(
            f"the record '{key}' in journals/{JOURNAL}.jsonl holds no rows with their labels; mend or delete"
            " its line, and the rows in it are asked for again"
        )
    assert isinstance(rows, list)
    assert isinstance(labels, list)
    return dict(zip(rows, labels, strict=True))
