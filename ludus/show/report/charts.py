"""Draw curves and histograms as inline SVG, without scripts and in the page's colours."""

from __future__ import annotations

import html
import itertools
import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence

from ludus.show.report.scales import (
    SMALLEST,
    Scale,
    counter_scale,
    interval_text,
    is_drawn,
    linear_scale,
    short_number,
    value_scale,
)
from ludus.show.report.strokes import TOP, Line as Line, PlotArea, curve, faint_runs, spread, swatch
from ludus.show.report.style import COLOURS, DASHES

NUM_COLOURS = len(COLOURS)
NUM_DASHES = len(DASHES)

WIDE, NARROW = (560.0, 250.0), (400.0, 200.0)
"""Sizes of a chart, width and height in pixels before the page scales it."""

_MAX_ROWS = 12
# NUL and other control characters are not valid HTML; a replacement character shows the gap.
_CONTROLS = {code: "\ufffd" for code in (*range(32), *range(127, 160)) if code not in (9, 10)}


def text(value: object) -> str:
    """Return anything as text that is safe between tags and inside quoted attributes."""
    return html.escape(str(value).translate(_CONTROLS), quote=True)


def line_chart(
    title: str,
    lines: Sequence[Line],
    *,
    x_label: str,
    size: tuple[float, float] = WIDE,
    num_buckets: int = 500,
    num_bands: int = 80,
    scales: tuple[Scale, Scale] | None = None,
    moments: Sequence[tuple[float, str]] = (),
    number: int | None = None,
) -> str:
    """Return a figure with its curves, axes, legend and, under the mouse, the values at each x.

    Each curve keeps at most three points in each of num_buckets; num_bands strips react to the mouse.
    `scales` are those of x and y; by default x counts something, and both are as long as the curves need.
    `moments` are x values at which something happened, each with a label.
    `number` is that by which the script of the page finds the chart.
    """
    drawn = [v for line in lines for v in (*line.ys, *line.lows, *line.highs) if is_drawn(v)]
    drawn += [v for line in lines for _, ys in line.runs for v in ys if is_drawn(v)]
    drawn += [line.best[1] for line in lines if line.best]
    legend = _legend(lines)
    if not drawn:
        return _figure(title, '<p class="none">No value of this metric is finite.</p>', legend)
    xs = [x for line in lines for x in (*line.xs[:1], *line.xs[-1:], *(line.best or ())[:1])]
    xs += [x for line in lines for places, _ in line.runs for x in (*places[:1], *places[-1:])]
    x_scale, y = scales or (counter_scale(min(xs), max(xs)), value_scale(drawn))
    frame = PlotArea(x_scale, y, size)
    body = [
        *_axes(frame, x_label + (" (vertical axis logarithmic)" if y.is_log else "")),
        *(_moment(frame, x, label) for x, label in moments if x_scale.low <= x <= x_scale.high),
        *(spread(frame, line) for line in lines if line.lows),
        *(faint_runs(frame, line, num_buckets) for line in lines if line.runs),
        *(curve(frame, line, num_buckets) for line in lines if line.xs),
        *_bands(frame, lines, x_label, num_bands),
        *_best_marks(frame, lines),
    ]
    return _figure(title, _svg(title, body, size), legend, number)


def bar_chart(title: str, edges: Sequence[float], counts: Sequence[float]) -> str:
    """Return the figure of a histogram: a bar between each two edges, at most 64 of them."""
    group = math.ceil(len(counts) / 64)
    heights = [sum(counts[start : start + group]) for start in range(0, len(counts), group)]
    sides = [*edges[:-1:group], edges[-1]]
    is_wide = sides[-1] - sides[0] > SMALLEST
    if not is_drawn(max(map(abs, sides))) or not is_drawn(sum(heights)) or not is_wide:
        return _figure(title, '<p class="none">This histogram has no width to draw.</p>', "")
    y = value_scale([0.0, max(heights) or 1.0])
    frame = PlotArea(linear_scale(sides[0], sides[-1], num_ticks=6), y, NARROW)
    bars = []
    for start, stop, height in zip(sides, sides[1:], heights, strict=False):
        x, top = frame.across(start), frame.down(height)
        width = max(frame.across(stop) - x - 1, 0.5)
        bars.append(
            f'<rect class="bar" x="{x:.1f}" y="{top:.1f}" width="{width:.1f}"'
            f' height="{frame.floor - top:.1f}"><title>{short_number(start)} to'
            f" {short_number(stop)}: {short_number(height)}</title></rect>"
        )
    return _figure(title, _svg(title, [*_axes(frame, "value"), *bars], NARROW), "")


def _figure(title: str, body: str, legend: str, number: int | None = None) -> str:
    mark = "" if number is None else f' data-chart="{number}"'
    return f"<figure{mark}><figcaption>{text(title)}</figcaption>{body}{legend}</figure>"


def _svg(title: str, body: Sequence[str], size: tuple[float, float]) -> str:
    head = f'<svg viewBox="0 0 {size[0]:.0f} {size[1]:.0f}" role="img" aria-label="{text(title)}">'
    return "\n".join([head, *body, "</svg>"])


def _axes(frame: PlotArea, x_label: str) -> Iterator[str]:
    floor, right = frame.floor, frame.right
    for tick, label in zip(frame.y.ticks, frame.y.labels, strict=True):
        y = frame.down(tick)
        yield f'<path class="grid" d="M{frame.left:.1f} {y:.1f}H{right:.1f}"/>'
        yield f'<text class="end" x="{frame.left - 8:.1f}" y="{y + 4:.1f}">{label}</text>'
    yield f'<path class="axis" d="M{frame.left:.1f} {floor:.1f}H{right:.1f}"/>'
    for tick, label in zip(frame.x.ticks, frame.x.labels, strict=True):
        x = frame.across(tick)
        # A label that the edge of the drawing would cut ends there instead.
        side = ' class="end"' if x + 3.4 * len(label) > frame.size[0] else ' class="mid"'
        yield f'<path class="axis" d="M{x:.1f} {floor:.1f}v4"/>'
        yield f'<text{side} x="{x:.1f}" y="{floor + 18:.1f}">{label}</text>'
    middle = (frame.left + right) / 2
    yield f'<text class="mid name" x="{middle:.1f}" y="{floor + 37:.1f}">{text(x_label)}</text>'


def _moment(frame: PlotArea, x: float, title: str) -> str:
    at = f"M{frame.across(x):.1f} {TOP:.0f}V{frame.floor:.0f}"
    return f'<path class="moment" d="{at}"><title>{text(title)}</title></path>'


def _bands(frame: PlotArea, lines: Sequence[Line], x_label: str, num_bands: int) -> Iterator[str]:
    """Yield strips that, under the mouse, show a hairline, a dot on each curve and the values."""
    xs = sorted({x for line in lines for x in line.xs})
    if len(xs) > num_bands:
        xs = sorted({xs[round(i * (len(xs) - 1) / (num_bands - 1))] for i in range(num_bands)})
    places = [frame.across(x) for x in xs]
    middles = [(a + b) / 2 for a, b in itertools.pairwise(places)]
    sides = [frame.left, *middles, frame.right]
    for x, place, start, stop in zip(xs, places, sides, sides[1:], strict=False):
        rows = [f"{x_label} {short_number(x)}"]
        hairline = f"M{place:.1f} {TOP:.0f}V{frame.floor:.0f}"
        dots = ""
        for line in lines:
            index = bisect_right(line.xs, x) - 1
            if index < 0 or len(rows) > _MAX_ROWS:
                continue
            rows.append(f"{line.label}: {short_number(line.ys[index])}{_between(line, index)}")
            if is_drawn(line.ys[index]) and line.xs[index] == x:
                y = frame.down(line.ys[index])
                dots += f'<circle class="c{line.colour}" cx="{place:.1f}" cy="{y:.1f}" r="3"/>'
        yield (
            f'<g class="band"><rect x="{start:.1f}" y="{TOP:.0f}" width="{stop - start:.1f}"'
            f' height="{frame.floor - TOP:.0f}"/><path d="{hairline}"/>{dots}'
            f"<title>{text(chr(10).join(rows))}</title></g>"
        )


def _between(line: Line, index: int) -> str:
    if not line.lows:
        return ""
    return f" ({interval_text(line.lows[index], line.highs[index])})"


def _best_marks(frame: PlotArea, lines: Sequence[Line]) -> Iterator[str]:
    marked = [line for line in lines if line.best]
    for line in marked:
        assert line.best is not None
        x, y = frame.across(line.best[0]), frame.down(line.best[1])
        title = (
            f"best of {line.label}: {short_number(line.best[1])} at {short_number(line.best[0])}"
        )
        yield (
            f'<circle class="best c{line.colour}" cx="{x:.1f}" cy="{y:.1f}" r="5.5">'
            f"<title>{text(title)}</title></circle>"
        )
        if len(marked) == 1:
            is_right = x > frame.size[0] / 2
            side, sign = ("end", -1) if is_right else ("start", 1)
            # Above the point, or next to it if there is no room above.
            x, y = (x, y - 12) if y > TOP + 18 else (x + 11 * sign, y + 4)
            label = f"best {short_number(line.best[1])}"
            yield f'<text class="{side} marked" x="{x:.1f}" y="{y:.1f}">{label}</text>'


def _legend(lines: Sequence[Line]) -> str:
    items = []
    for line in lines:
        last = f'<b title="the last value">{short_number(line.ys[-1]) if line.ys else "none"}</b>'
        value = last if line.value_text is None else f"<b>{text(line.value_text)}</b>"
        num_gaps = sum(not math.isfinite(y) for y in line.ys) + line.num_left_out
        gaps = f' <span class="warn">{num_gaps:,} not finite</span>' if num_gaps else ""
        items.append(f"<li>{swatch(line)}{text(line.label)} {value}{gaps}</li>")
    if any(line.is_noisy for line in lines):
        items.append("<li>faint: every value; strong: their mean</li>")
    return f'<ul class="legend">{"".join(items)}</ul>'


def drawing(title: str, body: Sequence[str], size: tuple[float, float], legend: str = "") -> str:
    """Return the figure of SVG elements that are drawn elsewhere, on an area of this size."""
    return _figure(title, _svg(title, body, size), legend)
