"""A table in a CSV file: a line of column names, then one example a line."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field

from ludus.config.optional import optional
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.data.batches.splits import Splits
from ludus.data.sources._files import existing, name_of
from ludus.data.sources._frames import FrameConfig, split_frame

_EMPTY = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
"""What an empty cell may hold."""


@register("dataset", "csv")
class Csv:
    """A table in a CSV file: a line of column names, then one example a line."""

    class Config(FrameConfig):
        """Which columns are learned from, how they become numbers, and how the rows are divided."""

        kind: Literal["csv"]
        """A CSV file in UTF-8 whose first line names the columns; it is read into memory."""
        delimiter: Annotated[str, Field(min_length=1, max_length=1)]
        """The character between two cells, such as a comma or a semicolon."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the examples, split by the generator."""
        optional("pyarrow", key="data.kind csv", extra="tables")
        path = existing(self._config.path, key="data.path")
        frame = CsvFrame(path, self._config.delimiter)
        return split_frame(frame, self._config, name_of(path), generator)


class CsvFrame:
    """The cells of a CSV file, as text until a column is asked for."""

    def __init__(self, path: Path, delimiter: str) -> None:
        self._path, self._delimiter = path, delimiter
        self._table = self._read()

    @property
    def names(self) -> Sequence[str]:
        """The columns, in the order of the file."""
        return [str(name) for name in self._table.column_names]

    def __len__(self) -> int:
        return int(self._table.num_rows)

    def _read(self) -> Any:
        import pyarrow
        from pyarrow import csv as arrow_csv

        bad: list[Any] = []

        def refuse(row: object) -> str:
            bad.append(row)
            return "skip"

        # One thread, because only then a bad row has a number.
        read = arrow_csv.ReadOptions(use_threads=False)
        try:
            parse = arrow_csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=refuse
            )
            convert = arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(self._header(), pyarrow.string()),
                null_values=_EMPTY,
                strings_can_be_null=True,
            )
            table = arrow_csv.read_csv(
                self._path, read_options=read, parse_options=parse, convert_options=convert
            )
        except UnicodeDecodeError:
            raise ConfigError(
                f"{self._path} is not a table that can be read: it is no UTF-8; save it as UTF-8"
            ) from None
        except (pyarrow.ArrowInvalid, pyarrow.ArrowKeyError, ValueError, csv.Error) as error:
            problem = str(error).splitlines()[0]
            raise ConfigError(f"{self._path} is not a table that can be read: {problem}") from None
        if bad:
            row = bad[0]
            more = f" (and {len(bad) - 1} more lines)" if len(bad) > 1 else ""
            line = self._line(row.number - 2) if row.number else "a line"
            raise ConfigError(
                f"{line} of {self._path} has {row.actual_columns} cells, not"
                f" {row.expected_columns}{more}; correct it, or the delimiter in data.delimiter"
            )
        return table

    def _header(self) -> list[str]:
        """Return the first row that is not empty; a cell of it may hold line breaks."""
        with self._path.open(encoding="utf-8-sig", newline="") as file:
            return next((row for row in csv.reader(file, delimiter=self._delimiter) if row), [])

    def numbers(self, name: str, *, remedy: str) -> np.ndarray:
        """Return a column as float64, NaN where a cell is empty."""
        import pyarrow
        from pyarrow import compute

        column = self._table.column(name)
        try:
            found = compute.cast(compute.utf8_trim_whitespace(column), pyarrow.float64())
        except pyarrow.ArrowInvalid:
            row, text = _first_text(column.to_pylist())
            raise ConfigError(
                f"column {name} of {self._path} holds {text[:60]!r} in {self.where(row)}, which is no"
                f" number; correct it, or {remedy}"
            ) from None
        return np.asarray(found.to_numpy(), dtype=np.float64)

    def texts(self, name: str) -> Sequence[str | None]:
        """Return a column as texts, None where a cell is empty."""
        texts: list[str | None] = self._table.column(name).to_pylist()
        return texts

    def where(self, row: int) -> str:
        """Return the line of the file that a row begins in."""
        return self._line(row)

    def _line(self, row: int) -> str:
        """Count lines, because a cell may hold line breaks and empty lines are no rows."""
        with self._path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            reader, seen, start = csv.reader(file, delimiter=self._delimiter), -2, 1
            try:
                for cells in reader:
                    seen += bool(cells)
                    if seen == row:
                        return f"line {start}"
                    start = reader.line_num + 1
            except csv.Error:
                pass
        return f"row {row + 1}"


_PLAIN = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*")
"""How a number is spelt that every reader takes."""


def _first_text(cells: Sequence[str | None]) -> tuple[int, str]:
    """Return the first cell that is no number, and its row."""
    for row, text in enumerate(cells):
        try:
            float(text or 0)
        except ValueError:
            return row, str(text)
    # Python takes spellings of numbers that the table does not, such as 1_000 and digits of other scripts.
    odd = [(row, text) for row, text in enumerate(cells) if text and not _PLAIN.fullmatch(text)]
    return odd[0] if odd else next((row, text) for row, text in enumerate(cells) if text)
