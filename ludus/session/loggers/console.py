"""Print each record as one line of text, for people who read a run through a pipe."""

from __future__ import annotations

import contextlib
from typing import Literal

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.session.record import Record
from ludus.show.terminal import warn
from ludus.store.storage import Storage


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
        # A terminal that has gone away must not end the run.
        with contextlib.suppress(OSError, ValueError):
            warn("  ".join(words))

    def close(self) -> None:
        """There is nothing to close."""
