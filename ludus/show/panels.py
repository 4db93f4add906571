"""Panels of the live display, fitted to the terminal, or a single line."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.text import Text

from ludus.show.layout import (
    Bar,
    Block,
    Row,
    SideBySide,
    Sparkline,
    column_widths,
    panel,
    rows_in_columns,
    share_height,
)
from ludus.show.names import is_evaluation, most_informative
from ludus.show.progress import Place
from ludus.show.sparkline import sparkline
from ludus.show.terminal import clean
from ludus.show.wording import (
    ShownScore,
    Value,
    filled,
    number,
    pace,
    per_second,
    scores_first,
    shorten,
    speed,
    where,
)

_NARROWEST, _WIDE, _WIDEST, _TALL = 20, 80, 160, 15
_IN_THREES = 140
"""Width from which three panels stand side by side."""
_MOST_CURVES, _SHORT_CURVE = 3, 12
_LONGEST_LABEL, _VALUE = 28, 9


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
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Counts a second of the counters that have a speed."""
    courses: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The values so far of the metrics by which the run is judged."""


def draw_panels(scene: Scene, width: int, height: int) -> RenderableType:
    """Return the panels that fit; the least important are dropped first."""
    width = min(width, _WIDEST)
    blocks = {block.title.split(":")[0]: block for block in _blocks(scene, width)}
    blocks = {title: block for title, block in blocks.items() if block.rows}
    groups = [["Progress"], ["Evaluation", "Metrics"]]
    # Changing values come first: a short terminal omits the facts known from the start.
    if width >= _IN_THREES:
        groups[-1].append("Run")
    elif height >= (_TALL if width >= _WIDE else 2 * _TALL):
        groups.append(["Run", "Device"])
    if width < _WIDE:
        groups = [[title] for group in groups for title in group]
    bands = [[blocks[title] for title in group if title in blocks] for group in groups]
    bands = [band for band in bands if band]
    # The last line stays free for the cursor.
    wanted = [max(block.num_lines for block in band) + 2 for band in bands]
    heights = share_height(wanted, height - 1)
    if width < _NARROWEST or not heights[0]:
        return draw_line(scene, width, height)
    drawn = {
        band[0].title: SideBySide(
            [
                (panel(block, columns, rows), columns)
                for block, columns in zip(band, column_widths(band, width), strict=True)
            ]
        )
        for band, rows in zip(bands, heights, strict=True)
        if rows
    }
    facts = [title for title in ("Run", "Device") if title in drawn]
    return Group(*(drawn[title] for title in [*facts, *(key for key in drawn if key not in facts)]))


def draw_line(scene: Scene, width: int, height: int) -> RenderableType:
    """Return the whole run as one line."""
    at = scene.place.doing if scene.place.is_over else where(scene.place) or scene.place.doing
    place = Text(shorten(clean(at), width // 2), style="cyan")
    if scene.phase is not None:
        place = Text("{} {}/{}".format(*scene.phase), style="cyan")
    shown = {**scene.metrics, **{name: score.last for name, score in scene.scores.items()}}
    names = scores_first(most_informative(shown), scene.courses)
    figures = [(f"{name} {number(shown[name])}", "dim") for name in names]
    curves = [(sparkline(v, _SHORT_CURVE), "green") for v in list(scene.courses.values())[:1]]
    numbers = Text(pace(scene.place))
    room = min(width - place.cell_len - 20, 2 * width // 3)
    for words, style in [*figures[:1], *curves, (speed(scene.speeds), ""), *figures[1:]]:
        if words and numbers.cell_len + 2 + cell_len(words) <= room:
            numbers.append("  ")
            numbers.append(words, style=style)
    return rows_in_columns([[place, Bar(scene.place.fraction), numbers]], 1, width)


def _blocks(scene: Scene, width: int) -> list[Block]:
    device = {name: text for name, text in scene.about.items() if name == "device"}
    facts = {name: text for name, text in scene.about.items() if name != "device"}
    device |= scene.memory
    if width >= _IN_THREES:
        facts, device = {**facts, **device}, {}
    metrics = most_informative(scene.metrics)
    scores = scores_first(most_informative(scene.scores), scene.courses)
    doing, _, why = clean(scene.place.doing).partition(": ")
    notes = textwrap.wrap(why, max(1, width - 4))
    return [
        Block(
            f"Progress{doing and f': {doing}'}",
            _progress_rows(scene),
            1,
            _counts(scene, width - 6),
            notes,
            width,
        ),
        Block(
            "Evaluation",
            [_score_row(name, scene.scores[name]) for name in scores],
            width=_longest(scores) + _VALUE + _VALUE + 5 + 6,
        ),
        Block(
            "Metrics",
            [[Text(name), Text(number(scene.metrics[name]))] for name in metrics],
            width=_longest(metrics) + _VALUE + 5,
        ),
        Block("Run", _fact_rows(facts), 1, width=_longest(facts) + 32),
        Block("Device", _fact_rows(device), 1, width=_longest(device) + 32),
    ]


def _counts(scene: Scene, room: int) -> str:
    """Return the counters, with their speeds if there is room for them."""
    counts = {name: f"{name} {count:,}" for name, count in scene.counters.items() if count}
    rates = {name: f" ({per_second(rate)}/s)" for name, rate in scene.speeds.items()}
    whole = filled([count + rates.get(name, "") for name, count in counts.items()], room)
    return "  ".join(whole if len(whole) == len(counts) else filled([*counts.values()], room))


def _longest(names: Iterable[str]) -> int:
    return max(map(cell_len, names), default=0)


def _progress_rows(scene: Scene) -> list[Row]:
    place = scene.place
    rows: list[Row] = [[Text("overall"), Bar(place.fraction), Text(pace(place, elapsed=True))]]
    for loop in place.loops:
        count = f"{loop.reached:,}" + (f" of {loop.total:,}" if loop.total is not None else "")
        rows.append([Text(clean(loop.name)), Bar(loop.fraction), Text(count)])
    if scene.phase is not None:
        description, done, total = scene.phase
        bar = Bar(min(1.0, done / total) if total else 1.0)
        rows.append([Text(description), bar, Text(f"{done:,} of {total:,}")])
    for name, values in list(scene.courses.items())[:_MOST_CURVES]:
        if values:
            rows.append(
                [
                    Text("score" if is_evaluation(name) else "metric"),
                    Sparkline(values),
                    Text(shorten(name, _LONGEST_LABEL)),
                ]
            )
    return rows


def _score_row(name: str, score: ShownScore) -> Row:
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


def _fact_rows(facts: Mapping[str, str]) -> list[Row]:
    return [[Text(name, style="dim"), Text(text)] for name, text in facts.items()]
