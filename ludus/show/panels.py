"""Panels of the live display, fitted to the terminal, or a single line."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import psutil
from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.panel import Panel
from rich.segment import Segment
from rich.text import Text

from ludus.show.names import informative_first
from ludus.show.progress import Place
from ludus.show.terminal import clean
from ludus.show.wording import ShownScore, Value, number, pace, shorten, where

_SHORTEST = 3  # a panel of one row, with its border
_NARROWEST, _WIDE, _TALL = 20, 80, 15
_REDRAWS_PER_SECOND = 4.0


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that one frame shows; nothing in it changes while it is drawn."""

    about: Mapping[str, str]
    place: Place
    counters: Mapping[str, int] = field(default_factory=dict)
    metrics: Mapping[str, Value] = field(default_factory=dict)
    scores: Mapping[str, ShownScore] = field(default_factory=dict)
    memory: Mapping[str, str] = field(default_factory=dict)
    phase: tuple[str, int, int] | None = None


@dataclass(frozen=True, slots=True)
class _Bar:
    """A progress bar that fills the available width; None if the fraction is unknown."""

    fraction: float | None


_Row = Sequence[Text | _Bar]


@dataclass(frozen=True, slots=True)
class _Block:
    """The rows of one panel, before it is known how many fit."""

    title: str
    rows: Sequence[_Row]
    wide_column: int = 0
    subtitle: str = ""


def draw_panels(scene: Scene, width: int, height: int) -> RenderableType:
    """Return the panels that fit; the least important are dropped first."""
    blocks = {block.title.split(":")[0]: block for block in _blocks(scene) if block.rows}
    pairs = [["Progress"], ["Evaluation", "Metrics"]]
    # Changing values come first: a short terminal omits the facts known from the start.
    if height >= (_TALL if width >= _WIDE else 2 * _TALL):
        pairs.append(["Run", "Device"])
    if width < _WIDE:
        pairs = [[title] for pair in pairs for title in pair]
    bands = [[blocks[title] for title in pair if title in blocks] for pair in pairs]
    bands = [band for band in bands if band]
    # The last line stays free for the cursor.
    heights = _share([max(len(block.rows) for block in band) + 2 for band in bands], height - 1)
    if width < _NARROWEST or not heights[0]:
        return draw_line(scene, width, height)
    drawn = {
        band[0].title: _SideBySide([_panel(block, width // len(band), rows) for block in band])
        for band, rows in zip(bands, heights, strict=True)
        if rows
    }
    facts = [title for title in ("Run", "Device") if title in drawn]
    return Group(*(drawn[title] for title in [*facts, *(key for key in drawn if key not in facts)]))


def draw_line(scene: Scene, width: int, height: int) -> RenderableType:
    """Return the whole run as one line."""
    place = Text(where(scene.place) or clean(scene.place.doing), style="cyan")
    if scene.phase is not None:
        place = Text("{} {}/{}".format(*scene.phase), style="cyan")
    shown = {**scene.metrics, **{name: score.last for name, score in scene.scores.items()}}
    numbers = Text(pace(scene.place))
    room = min(width - place.cell_len - 20, width // 2)
    for name in informative_first(shown):
        words = f"  {name} {number(shown[name])}"
        if numbers.cell_len + len(words) > room:
            break
        numbers.append(words, style="dim")
    return _lines([[place, _Bar(scene.place.fraction), numbers]], 1, width)


def _blocks(scene: Scene) -> list[_Block]:
    counters = "  ".join(f"{name} {count:,}" for name, count in scene.counters.items() if count)
    device = {name: text for name, text in scene.about.items() if name == "device"}
    facts = {name: text for name, text in scene.about.items() if name != "device"}
    values = {name: number(scene.metrics[name]) for name in informative_first(scene.metrics)}
    scores = {name: scene.scores[name] for name in informative_first(scene.scores)}
    doing = f": {clean(scene.place.doing)}" if scene.place.doing else ""
    return [
        _Block(f"Progress{doing}", _progress_rows(scene), 1, counters),
        _Block("Evaluation", [_score_row(name, score) for name, score in scores.items()]),
        _Block("Metrics", [[Text(name), Text(value)] for name, value in values.items()]),
        _Block("Run", _fact_rows(facts), 1),
        _Block("Device", _fact_rows({**device, **scene.memory}), 1),
    ]


def _progress_rows(scene: Scene) -> list[_Row]:
    place = scene.place
    rows: list[_Row] = [[Text("overall"), _Bar(place.fraction), Text(pace(place, elapsed=True))]]
    for loop in place.loops:
        count = f"{loop.reached:,}" + (f" of {loop.total:,}" if loop.total is not None else "")
        rows.append([Text(loop.name), _Bar(loop.fraction), Text(count)])
    if scene.phase is not None:
        description, done, total = scene.phase
        bar = _Bar(min(1.0, done / total) if total else 1.0)
        rows.append([Text(description), bar, Text(f"{done:,} of {total:,}")])
    return rows


def _score_row(name: str, score: ShownScore) -> _Row:
    if score.best is not None and score.best == score.last:
        return [Text(name), Text(number(score.last), style="green"), Text("best", style="green")]
    if score.best is not None:
        return [
            Text(name),
            Text(number(score.last)),
            Text(f"best {number(score.best)}", style="dim"),
        ]
    was = "" if score.previous is None else f"was {number(score.previous)}"
    return [Text(name), Text(number(score.last)), Text(was, style="dim")]


def _fact_rows(facts: Mapping[str, str]) -> list[_Row]:
    return [[Text(name, style="dim"), Text(text)] for name, text in facts.items()]


def _share(wanted: Sequence[int], available: int) -> list[int]:
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
class _SideBySide:
    """Panels of equal height side by side, much faster to draw than a rich table."""

    panels: Sequence[Panel]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width // len(self.panels)
        narrow = options.update(width=width, height=None)
        for lines in zip(
            *(console.render_lines(panel, narrow) for panel in self.panels), strict=True
        ):
            yield from chain.from_iterable(lines)
            yield Segment.line()


def _panel(block: _Block, width: int, height: int) -> Panel:
    num_hidden = len(block.rows) - (height - 2)
    subtitle = block.subtitle or (f"{num_hidden} more" if num_hidden > 0 else "")
    return Panel(
        _lines(block.rows[: height - 2], block.wide_column, width - 4),
        title=Text(block.title, style="bold"),
        subtitle=Text(subtitle, style="dim") if subtitle else None,
        title_align="left",
        subtitle_align="left",
        box=box.ROUNDED,
        border_style="dim",
        height=height,
    )


def _lines(rows: Sequence[_Row], wide: int, width: int) -> Text:
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


def _length(cell: Text | _Bar) -> int:
    return cell.cell_len if isinstance(cell, Text) else 0


def _fit(cell: Text | _Bar, width: int) -> Text:
    if isinstance(cell, Text):
        if cell.cell_len > width:
            return Text(shorten(cell.plain, width), style=cell.style)
        cell.pad_right(width - cell.cell_len)
        return cell
    if cell.fraction is None:
        return Text("┄" * width, style="dim")
    num_done = int(cell.fraction * width)
    return Text.assemble(("━" * num_done, "green"), ("─" * (width - num_done), "dim"))


class SteadyLive(Live):
    """A rich Live that stops drawing at the first failure, instead of raising it in the run."""

    def __init__(self, console: Console, render: Callable[[], RenderableType]) -> None:
        self.failure: BaseException | None = None
        # A redirected stream, such as a pipe for JSON, is left alone.
        super().__init__(
            console=console,
            get_renderable=render,
            refresh_per_second=_REDRAWS_PER_SECOND,
            redirect_stdout=is_terminal(sys.stdout),
            redirect_stderr=is_terminal(sys.stderr),
        )

    def attempt(self, action: Callable[[], None]) -> None:
        """Call it, unless something failed before."""
        if self.failure is None:
            try:
                action()
            # rich raises SystemExit when the reader of its output is gone.
            except (Exception, SystemExit) as error:
                self.failure = error

    def refresh(self) -> None:
        """Redraw."""
        self.attempt(super().refresh)

    def let_go(self) -> None:
        """Restore the streams without drawing."""
        self._disable_redirect_io()


def is_terminal(stream: object) -> bool:
    """Return whether a stream is a terminal."""
    # Not rich's own test: FORCE_COLOR makes that true for the pipe of a CI job.
    return bool(getattr(stream, "isatty", bool)())


class Memory:
    """Reads the memory use of this process, at most once a second."""

    def __init__(self) -> None:
        self._process = psutil.Process()
        self._looked = -math.inf
        self._found: dict[str, str] = {}

    def read(self) -> Mapping[str, str]:
        """Return the memory in use, and that of the GPUs if this process uses any."""
        now = time.monotonic()
        if now - self._looked >= 1.0:
            self._looked = now
            used, total = self._process.memory_info().rss, psutil.virtual_memory().total
            self._found = {"memory": f"{_gigabytes(used)} of {_gigabytes(total)}", **_cuda_memory()}
        return self._found


def _cuda_memory() -> dict[str, str]:
    # Never imported or initialised here: the display must not be what starts a GPU.
    cuda = sys.modules.get("torch.cuda")
    if cuda is None or not getattr(cuda, "is_initialized", bool)():
        return {}
    devices = range(cuda.device_count())
    used = sum(cuda.memory_allocated(device) for device in devices)
    peak = sum(cuda.max_memory_allocated(device) for device in devices)
    return {"gpu memory": f"{_gigabytes(used)}, peak {_gigabytes(peak)}"}


def _gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:.0f} MB"
