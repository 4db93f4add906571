"""Write metrics.csv in long form: one value per row, so that a new metric never changes the columns."""

from __future__ import annotations

import csv
import io
from typing import Literal

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.session.record import Record
from ludus.store.storage import Storage


@register("logger", "csv")
class Csv:
    """Columns: the counters of the run, then name and value. Pivot on `name` for one column per metric."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["csv"]
        """Always csv."""

    def __init__(self, config: Config, storage: Storage) -> None:
        self._file = storage.append("metrics.csv")

    def write(self, record: Record) -> None:
        """Append a row for each scalar, and a header before the first."""
        text = io.StringIO()
        rows = csv.writer(text, lineterminator="\n")
        if self._file.offset == 0 and not self._file.backlog:
            rows.writerow([*record.counter_names, "name", "value"])
        counters = [record.counters.get(name, 0) for name in record.counter_names]
        for name, value in record.scalars.items():
            rows.writerow([*counters, _safe_cell(name), repr(value)])
        self._file.write(text.getvalue().encode(errors="replace"))

    def close(self) -> None:
        """Do nothing: the storage closes its files itself."""


def _safe_cell(text: str) -> str:
    """Return text that a spreadsheet reads neither as a formula nor as the end of a row."""
    text = text.replace("\r", "\\r")
    return f"'{text}" if text.startswith(("=", "+", "-", "@", "\t")) else text
