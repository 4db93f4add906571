"""Print a table: fitted to a terminal; in a pipe, which has no width, each row is one line, however long."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.table import Table

_PIPE_WIDTH = 1000


def terminal_width() -> int | None:
    """Return the number of columns of the terminal on standard output; None for a pipe."""
    if sys.stdout is None or not sys.stdout.isatty():
        return None
    return Console().width


def print_table(table: Table) -> None:
    """Print it on standard output; its cells must be clean."""
    Console(width=terminal_width() or _PIPE_WIDTH).print(table)
