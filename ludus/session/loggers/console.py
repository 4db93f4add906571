"""Print each record as one line of text, for a run whose output is piped."""

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
    """Prints one line per write, to standard error so that standard output stays clean."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["console"]
        """Always console."""

    def __init__(self, config: Config, storage: Storage) -> None:
        """`storage` is unused: the line goes to the terminal."""

    def write(self, record: Record) -> None:
        """Print the counters and the scalars."""
        words = [f"{name} {value}" for name, value in record.counters.items()]
        words += [f"{name} {value:.6g}" for name, value in record.scalars.items()]
        # A closed terminal must not end the run.
        with contextlib.suppress(OSError, ValueError):
            warn("  ".join(words))

    def close(self) -> None:
        """Do nothing."""
