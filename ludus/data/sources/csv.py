"""A table in a CSV file: a line of column names, then one example per line."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch.utils.data import Dataset

from ludus.config.base import StrictConfig
from ludus.config.optional import optional
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.data.batches.splits import Splits
from ludus.data.sources._files import existing, name_of
from ludus.data.sources._frames import FrameConfig, frame_of, other_frame, split_frame

_EMPTY = ["", "NA", "N/A", "NaN", "nan", "null", "NULL"]
"""The texts that mean an empty cell."""


@register("dataset", "csv")
class CsvTable:
    """A table in a CSV file: a line of column names, then one example per line."""

    class Config(FrameConfig):
        """The columns to learn from, their encoding as numbers, and the split of the rows."""

        kind: Literal["csv"]
        """A CSV file in UTF-8 whose first line names the columns; it is read into memory."""
        delimiter: Annotated[str, Field(min_length=1, max_length=1)]
        """The character between two cells, such as a comma or a semicolon."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the examples, split by the generator."""
        return split_frame(self.frame(), self._config, name_of(Path(self._config.path)), generator)

    def frame(self) -> CsvFrame:
        """Return the table in the file."""
        optional("pyarrow", key="data.kind csv", extra="tables")
        return CsvFrame(existing(self._config.path, key="data.path"), self._config.delimiter)

    def others(self, section: StrictConfig, generator: torch.Generator) -> Dataset[Any] | None:
        """Return all examples of another file with the same columns, encoded as those of this one."""
        if not isinstance(section, FrameConfig):
            return None
        return other_frame(self.frame(), self._config, frame_of(section), section, generator)


class CsvFrame:
    """The cells of a CSV file, kept as text until a column is read."""

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

        # One thread, because only then does a bad row have a number.
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
            line = self.where(row.number - 2) if row.number else "a line"
            raise ConfigError(
                f"{line} of {self._path} has {row.actual_columns} cells, not"
                f" {row.expected_columns}{more}; correct it, or the delimiter in data.delimiter"
            )
        return table

    def _header(self) -> list[str]:
        """Return the first row that is not empty; its cells may hold line breaks."""
        with self._path.open(encoding="utf-8-sig", newline="") as file:
            return next((row for row in csv.reader(file, delimiter=self._delimiter) if row), [])

    def numbers(self, name: str, *, remedy: str) -> np.ndarray:
        """Return a column as float64, NaN for an empty cell."""
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
        """Return a column as texts, None for an empty cell."""
        texts: list[str | None] = self._table.column(name).to_pylist()
        return texts

    def where(self, row: int) -> str:
        """Return the line of the file that a row begins in.

        Lines are counted, because a cell may hold line breaks and empty lines are not rows.
        """
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
"""A number in a spelling that every reader accepts."""


def _first_text(cells: Sequence[str | None]) -> tuple[int, str]:
    """Return the first cell that is not a number, and its row."""
    for row, text in enumerate(cells):
        try:
            float(text or 0)
        except ValueError:
            return row, str(text)
    # Python accepts spellings of numbers that Arrow does not, such as 1_000 and digits of other scripts.
    odd = [(row, text) for row, text in enumerate(cells) if text and not _PLAIN.fullmatch(text)]
    return odd[0] if odd else next((row, text) for row, text in enumerate(cells) if text)
