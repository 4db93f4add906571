"""Lay out rows of text, progress bars and sparklines in panels of a given size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

from rich import box
from rich.console import Console, ConsoleOptions, RenderResult
from rich.panel import Panel
from rich.segment import Segment
from rich.text import Text

from ludus.show.sparkline import sparkline
from ludus.show.wording import shorten

_SHORTEST = 3  # a panel of one row, with its border


@dataclass(frozen=True, slots=True)
class Bar:
    """A progress bar that fills the available width; None if the fraction is unknown."""

    fraction: float | None


@dataclass(frozen=True, slots=True)
class Sparkline:
    """A sparkline that fills the available width."""

    values: Sequence[float]


Cell = Text | Bar | Sparkline
Row = Sequence[Cell]


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one panel, before it is known how many fit."""

    title: str
    rows: Sequence[Row]
    wide_column: int = 0
    subtitle: str = ""
    notes: Sequence[str] = ()
    """Lines below the rows."""
    width: int = 0
    """Width that it would like to have; it does not depend on what changes with each record."""

    @property
    def num_lines(self) -> int:
        return len(self.rows) + len(self.notes)


def column_widths(band: Sequence[Block], width: int) -> list[int]:
    """Return the width of each panel: what it would like to have, and its part of what is left or lacks."""
    wanted = [block.width for block in band]
    lacking = sum(wanted) - width
    if lacking > 0:
        # The larger ones yield first, so that a narrow panel stays whole.
        fair = width // len(band)
        spare = [max(0, columns - fair) for columns in wanted]
        wanted = [
            columns - math.ceil(lacking * over / max(1, sum(spare)))
            for columns, over in zip(wanted, spare, strict=True)
        ]
    left = width - sum(wanted)
    shares = [left // len(band)] * len(band)
    shares[-1] += left - sum(shares)
    return [columns + more for columns, more in zip(wanted, shares, strict=True)]


def share_height(wanted: Sequence[int], available: int) -> list[int]:
    """Give the first band its full height, the others a row each, then the rest in turn."""
    heights: list[int] = []
    for index, lines in enumerate(wanted):
        given = min(lines, available) if index == 0 else _SHORTEST
        heights.append(given if _SHORTEST <= given <= available else 0)
        available -= heights[-1]
    growing = [index for index, height in enumerate(heights) if height]
    while available > 0 and growing:
        growing = [index for index in growing if heights[index] < wanted[index]]
        for index in growing[:available]:
            heights[index] += 1
            available -= 1
    return heights


@dataclass(frozen=True, slots=True)
class SideBySide:
    """Panels of equal height side by side, much faster to draw than a rich table."""

    panels: Sequence[tuple[Panel, int]]
    """Each with its width."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns = [
            console.render_lines(panel, options.update(width=width, height=None))
            for panel, width in self.panels
        ]
        for lines in zip(*columns, strict=True):
            yield from chain.from_iterable(lines)
            yield Segment.line()


def panel(block: Block, width: int, height: int) -> Panel:
    notes = block.notes[: max(0, height - 2 - 1)]
    rows = block.rows[: height - 2 - len(notes)]
    num_hidden = len(block.rows) - len(rows)
    subtitle = block.subtitle or (f"{num_hidden} more" if num_hidden > 0 else "")
    content = rows_in_columns(rows, block.wide_column, width - 4)
    for note in notes:
        content.append(f"\n{note}", style="yellow")
    return Panel(
        content,
        title=Text(block.title, style="bold"),
        subtitle=Text(subtitle, style="dim") if subtitle else None,
        title_align="left",
        subtitle_align="left",
        box=box.ROUNDED,
        border_style="dim",
        height=height,
    )


def rows_in_columns(rows: Sequence[Row], wide: int, width: int) -> Text:
    """Lay out the rows in columns; the wide column takes the width that the others leave."""
    cells = [[_length(cell) for cell in row] for row in rows]
    widths = [min(max(lengths), 2 * width // 3) for lengths in zip(*cells, strict=True)]
    widths[wide] = 0
    widths[wide] = max(1, width - sum(widths) - (len(widths) - 1))
    lines = []
    for row in rows:
        line = Text(" ").join(_fit(cell, room) for cell, room in zip(row, widths, strict=True))
        line.truncate(width, overflow="ellipsis")
        lines.append(line)
    return Text("\n", no_wrap=True).join(lines)


def _length(cell: Cell) -> int:
    return cell.cell_len if isinstance(cell, Text) else 0


def _fit(cell: Cell, width: int) -> Text:
    if isinstance(cell, Text):
        if cell.cell_len > width:
            return Text(shorten(cell.plain, width), style=cell.style)
        cell.pad_right(width - cell.cell_len)
        return cell
    if isinstance(cell, Sparkline):
        return Text(sparkline(cell.values, width).ljust(width), style="green")
    if cell.fraction is None:
        return Text("┄" * width, style="dim")
    num_done = int(cell.fraction * width)
    return Text.assemble(("━" * num_done, "green"), ("─" * (width - num_done), "dim"))
