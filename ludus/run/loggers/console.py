"""Print each record as one line of text, for people who read a run through a pipe."""

from __future__ import annotations

import sys
from typing import Literal

from ludus.config import StrictConfig
from ludus.registry import register
from ludus.run.logger import Record
from ludus.run.storage import Storage


@register("logger", "console")
class Console:
    """One line a write, on standard error so that it mixes with no program's output."""

    class Config(StrictConfig):
        """It has nothing to choose."""

        kind: Literal["console"]
        """Always console."""

    def __init__(self, config: Config, storage: Storage) -> None:
        """The storage is not used: the line goes to the terminal."""

    def write(self, record: Record) -> None:
        """Print the counters and the scalars."""
        words = [f"{name} {value}" for name, value in record.counters.items()]
        words += [f"{name} {value:.6g}" for name, value in record.scalars.items()]
        print("  ".join(words), file=sys.stderr, flush=True)

    def close(self) -> None:
        """There is nothing to close."""
