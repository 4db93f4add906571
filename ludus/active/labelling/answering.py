"""Parsing of people's answers: words in a terminal, or rows of a CSV file, checked before use."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ludus.active.labelling.queries import Queries
from ludus.active.oracle import Labels
from ludus.core.errors import LudusError

_MOST_BYTES = 1 << 26
_MAX_LISTED = 5


class Words:
    """Parses an answer into a label: a class by its name or number, or a number."""

    def __init__(self, queries: Queries) -> None:
        self._labels = Labels(num_classes=queries.num_classes)
        names = queries.class_names or []
        self._by_name = {name.strip().casefold(): at for at, name in enumerate(names)}
        # A name such as "7" would be parsed as another class.
        self._are_numbers = any(_number(name) is not None for name in names)

    def label(self, row: int, word: str) -> int | float:
        """Return the label of a word; raise LudusError if it is not valid."""
        word = word.strip()
        if (found := self._by_name.get(word.casefold())) is not None:
            return found
        number = None if self._are_numbers else _number(word)
        if number is None:
            raise LudusError(f"{word[:40]!r} is no label; give {self.valid_answers()}")
        return self._labels.checked(row, number)

    def is_name(self, word: str) -> bool:
        """Return whether this is the name of a class."""
        return word.strip().casefold() in self._by_name

    def valid_answers(self) -> str:
        """Return a description of the valid answers."""
        count = self._labels.num_classes
        if count is None:
            return "a number"
        names = ", ".join(self._by_name)
        if self._are_numbers:
            return f"one of {names}"
        return f"a class from 0 to {count - 1}" + (f", or one of {names}" if names else "")


def _number(word: str) -> int | float | None:
    for read in (int, float):
        try:
            # Python parses 1_0 as ten; from a person it is a typing error.
            return None if "_" in word else read(word)
        except ValueError:
            continue
    return None


def read_answers(
    path: Path, queries: Queries, known: Mapping[int, int | float]
) -> tuple[dict[int, int | float], int]:
    """Return the new answers of a CSV file by row, and the number of blank rows.

    Raise LudusError, with line numbers, unless the whole file is valid. A row with the same answer as
    before is skipped, so that a file can be given twice.
    """
    words, found, problems = Words(queries), dict[int, int | float](), list[str]()
    seen: dict[int, int] = {}
    num_blank = 0
    for line, row_word, label_word in _pairs(path):
        row = _number(row_word)
        if not isinstance(row, int):
            problems.append(f"line {line}: {row_word[:40]!r} is no row; give its number")
        elif row in seen:
            problems.append(f"line {line}: row {row} stands in line {seen[row]} already")
        elif row not in queries.rows and row not in known:
            problems.append(f"line {line}: row {row} was not asked for")
        elif not label_word.strip():
            seen[row] = line
            num_blank += row not in known
        else:
            seen[row] = line
            try:
                label = words.label(row, label_word)
            except LudusError as error:
                problems.append(f"line {line}: {error}")
                continue
            if row in known and known[row] != label:
                problems.append(f"line {line}: row {row} was answered before, with {known[row]}")
            elif row not in known:
                found[row] = label
    if problems:
        more = len(problems) - _MAX_LISTED
        listed = "; ".join(problems[:_MAX_LISTED]) + (f"; and {more} more" if more > 0 else "")
        raise LudusError(
            f"{path}: {listed}. None of its answers was kept; mend it and give it again"
        )
    return found, num_blank


def has_new_answers(path: Path, queries: Queries, known: Mapping[int, int | float]) -> bool:
    """Return whether a CSV file has a label that is not among the known ones, valid or not."""
    words = Words(queries)
    for _, row_word, label_word in _pairs(path):
        if not label_word.strip():
            continue
        try:
            row = int(row_word)
            if known.get(row) != words.label(row, label_word):
                return True
        except (ValueError, LudusError):
            return True
    return False


def _pairs(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield line, row and label as text; the first line may be a header."""
    lines = list(_lines(path))
    if not lines:
        raise LudusError(f"{path} is empty; write a line `row,label` for each answer")
    row_at, label_at, start = 0, 1, 0
    names = [cell.strip().casefold() for cell in lines[0][1]]
    if any(_number(name) is None for name in names[:1]):
        if "row" not in names or "label" not in names:
            raise LudusError(
                f"{path}: the first line names the columns {', '.join(names)[:80]};"
                " it needs `row` and `label`"
            )
        row_at, label_at, start = names.index("row"), names.index("label"), 1
    width = len(names)
    for line, cells in lines[start:]:
        if len(cells) != width:
            raise LudusError(
                f"{path}: line {line} has {len(cells)} columns and the first line {width}; is the file"
                " whole? None of its answers was kept"
            )
        if width < 2:
            raise LudusError(f"{path}: line {line} has no label; write `row,label` for each answer")
        yield line, cells[row_at], cells[label_at]


def _delimiter(text: str) -> str:
    """Return the delimiter: spreadsheets write semicolons where the comma is the decimal sign."""
    first = text.partition("\n")[0]
    if ";" not in first:
        return ","
    # A column name in our own export may contain a semicolon.
    names = [cell.strip().casefold() for cell in next(csv.reader([first]))]
    return "," if {"row", "label"} <= {*names} else ";"


def _lines(path: Path) -> Iterator[tuple[int, Sequence[str]]]:
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise LudusError(f"{path} is larger than the {_MOST_BYTES} bytes it may have")
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise LudusError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        # UTF-16 text can be decoded as UTF-8, with zero bytes between the letters.
        raise LudusError(f"{path} is not UTF-8 text; save it as CSV in UTF-8")
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text), strict=True)
    try:
        yield from ((rows.line_num, cells) for cells in rows if any(map(str.strip, cells)))
    except csv.Error as error:
        raise LudusError(f"{path}: line {rows.line_num}: {error}; is the file whole?") from None
