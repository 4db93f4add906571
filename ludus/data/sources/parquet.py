"""A table in a Parquet file: one example per row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch.utils.data import Dataset

from ludus.config.base import StrictConfig
from ludus.config.optional import optional
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.data.batches.splits import Splits
from ludus.data.sources._files import existing, name_of
from ludus.data.sources._frames import FrameConfig, frame_of, other_frame, split_frame


@register("dataset", "parquet")
class Parquet:
    """A table in a Parquet file: one example per row."""

    class Config(FrameConfig):
        """The columns to learn from, their encoding as numbers, and the split of the rows."""

        kind: Literal["parquet"]
        """A Parquet file; the columns that are used are read into memory."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the examples, split by the generator."""
        return split_frame(self.frame(), self._config, name_of(Path(self._config.path)), generator)

    def frame(self) -> ParquetFrame:
        """Return the table in the file."""
        optional("pyarrow.parquet", key="data.kind parquet", extra="tables")
        return ParquetFrame(existing(self._config.path, key="data.path"))

    def others(self, section: StrictConfig, generator: torch.Generator) -> Dataset[Any] | None:
        """Return all examples of another file with the same columns, encoded as those of this one."""
        if not isinstance(section, FrameConfig):
            return None
        return other_frame(self.frame(), self._config, frame_of(section), section, generator)


class ParquetFrame:
    """The columns of a Parquet file, each read on demand."""

    def __init__(self, path: Path) -> None:
        import pyarrow
        from pyarrow import parquet

        self._path = path
        try:
            self._file: Any = parquet.ParquetFile(path)
        except (pyarrow.ArrowInvalid, OSError) as error:
            problem = str(error).splitlines()[0]
            raise ConfigError(f"{path} is not a Parquet file that can be read: {problem}") from None

    @property
    def names(self) -> Sequence[str]:
        """The columns, in the order of the file."""
        return [str(name) for name in self._file.schema_arrow.names]

    def __len__(self) -> int:
        return int(self._file.metadata.num_rows)

    def _column(self, name: str) -> Any:
        import pyarrow

        try:
            column = self._file.read(columns=[name]).column(0)
        except (pyarrow.ArrowException, OSError, IndexError) as error:
            problem = (str(error).splitlines() or ["it is nested"])[0]
            raise ConfigError(f"column {name} of {self._path} cannot be read: {problem}") from None
        if pyarrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        return column

    def numbers(self, name: str, *, remedy: str) -> np.ndarray:
        """Return a column as float64, NaN for an empty cell."""
        import pyarrow

        column, types = self._column(name), pyarrow.types
        kinds = (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
        if not any(is_kind(column.type) for is_kind in kinds):
            raise ConfigError(
                f"column {name} of {self._path} holds {column.type} values, which are no numbers; {remedy}"
            )
        if types.is_boolean(column.type):
            column = column.cast(pyarrow.int8())
        return np.asarray(column.cast(pyarrow.float64(), safe=False).to_numpy(), dtype=np.float64)

    def texts(self, name: str) -> Sequence[str | None]:
        """Return a column as texts, None for an empty cell."""
        import pyarrow

        try:
            found = self._column(name).cast(pyarrow.string()).to_pylist()
        except pyarrow.ArrowException:
            raise ConfigError(
                f"column {name} of {self._path} cannot be read as text; leave it out of data.features"
            ) from None
        return [None if text in (None, "nan") else text for text in found]

    def where(self, row: int) -> str:
        """Return the number of a row, counted from 1."""
        return f"row {row + 1}"
