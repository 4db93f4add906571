"""The oracle protocol, and the journal of its answers: no label is requested twice or lost."""

from __future__ import annotations

import contextlib
import re
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
from ludus.core.services import JournalProtocol

OracleSection = Annotated[SerializeAsAny[StrictConfig], registered("oracle")]

JOURNAL = "labels"
"""The journal of all answers: a record holds `rows` and their `labels`."""
_KEY = "answer-"
_NUMBERED = re.compile(rf"{_KEY}([0-9]+)")
_GREATEST = 1e15
"""Beyond it the squared error of a label, or the gradient norm, would overflow float32."""


class Oracle(Protocol):
    """Labels the queries, immediately or later."""

    def check(self, examples: PoolExamples, labels: Labels, *, model: object) -> None:
        """Raise LudusError, before the run begins, if it cannot answer."""

    def answer(self, rows: Tensor, examples: PoolExamples, answers: Answers, *, run: Run) -> None:
        """Put the labels of these rows, or of some; the run pauses until all are labelled."""

    def waits_for(self, run: Run) -> str:
        """Return what the user should do about missing labels."""


class Labels:
    """The valid labels: classes, or numbers."""

    def __init__(self, *, num_classes: int | None) -> None:
        """`num_classes` is None for regression."""
        self.num_classes = num_classes
        self.dtype = torch.float32 if num_classes is None else torch.int64

    def checked(self, row: int, label: object) -> int | float:
        """Return the label of a row; raise LudusError if it is not valid."""
        number: Any = label
        if hasattr(label, "item"):
            with contextlib.suppress(ValueError, RuntimeError):
                number = label.item()
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if self.num_classes is None:
            if is_number and abs(number) <= _GREATEST:
                return float(number)
            raise LudusError(
                f"the label of row {row} is {_shown(number)}; give a finite number between -{_GREATEST:g}"
                f" and {_GREATEST:g}, in a larger unit if need be"
            )
        if not is_number or number != number // 1 or not 0 <= number < self.num_classes:
            raise LudusError(
                f"the label of row {row} is {_shown(number)}; the classes of this run are the whole numbers"
                f" from 0 to {self.num_classes - 1}"
            )
        return int(number)

    def first_wrong(self, labels_N: Tensor) -> list[int]:
        """Return a list of the first row with an invalid label, empty if all are valid."""
        numbers_N = labels_N.double()
        is_right_N = numbers_N.abs() <= _GREATEST
        if self.num_classes is not None:
            in_range_N = (numbers_N >= 0) & (numbers_N < self.num_classes)
            is_right_N = is_right_N & in_range_N & (numbers_N == numbers_N.floor())
        return [int(row) for row in (~is_right_N).nonzero()[:1, 0]]


class Answers:
    """All answers of a run by row, from its journal; an answer is durable when `put` returns."""

    def __init__(self, journal: Callable[[], JournalProtocol], labels: Labels) -> None:
        """`journal` opens the run's journal, which exists once the run does."""
        self._journal, self.labels = journal, labels

    def known(self) -> dict[int, Any]:
        """Return the label of every answered row; the last answer counts."""
        journal = self._journal()
        found: dict[int, Any] = {}
        for key in journal.keys():  # noqa: SIM118 - a Journal is no mapping
            found |= _pairs(journal.get(key) or {}, key)
        return found

    def put(self, rows: Sequence[int], labels: Sequence[Any]) -> None:
        """Store all valid answers; then raise LudusError if one was invalid."""
        checked: dict[int, int | float] = {}
        problems: list[LudusError] = []
        for row, label in zip(rows, labels, strict=True):
            try:
                checked[row] = self.labels.checked(row, label)
            except LudusError as error:
                problems.append(error)
        if checked:
            # First, as the valid answers may have been paid for.
            journal = self._journal()
            # Not by their count: a person may have deleted a line, and the last record of a key counts.
            taken = [int(found[1]) for found in map(_NUMBERED.fullmatch, journal.keys()) if found]
            record = {"rows": list(checked), "labels": list(checked.values())}
            journal.put(f"{_KEY}{max(taken, default=-1) + 1}", record)
        if problems:
            raise problems[0]

    def tensor(self, rows: Tensor, known: Mapping[int, Any]) -> Tensor:
        """Return the labels of rows that are all known."""
        try:
            found = [self.labels.checked(row, known[row]) for row in rows.tolist()]
        except LudusError as error:
            # Answers are checked before they are stored, so the journal has been edited since.
            raise LudusError(
                f"journals/{JOURNAL}.jsonl: {error}; mend or delete its line, and the rows in it are asked"
                " for again"
            ) from None
        return torch.tensor(found, dtype=self.labels.dtype)


def _shown(label: object) -> str:
    """Return a label as short text; Python does not print integers of very many digits."""
    if isinstance(label, int) and abs(label) > _GREATEST:
        return f"a whole number of more than {len(str(int(_GREATEST))) - 1} digits"
    text = repr(label)
    return text if len(text) <= 40 else f"{text[:40]}..."


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
