"""SVG strokes of one series: its curve, the dots of single measurements, and its swatch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ludus.show.report.scales import Scale, is_drawn, is_noisy, means, thin

TOP = 14.0
"""Pixels above the plotting area."""

_RIGHT, _BOTTOM = 14.0, 44.0
_NUM_MEANS = 60
# Relative paths around a point, each with about the same area.
_SHAPES = (
    "m-3.6 0a3.6 3.6 0 1 0 7.2 0a3.6 3.6 0 1 0 -7.2 0z",
    "m-3.3 -3.3h6.6v6.6h-6.6z",
    "m0 -4.8l4.8 4.8l-4.8 4.8l-4.8 -4.8z",
    "m0 -4.6l4.6 8h-9.2z",
    "m0 4.6l4.6 -8h-9.2z",
)

NUM_MARKS = 2 * len(_SHAPES)
"""Number of distinct marks of one colour: the shapes, first filled, then hollow."""


@dataclass(frozen=True)
class Line:
    """One curve: xs sorted, ys as long (non-finite is a gap), and the best point if it has one.

    If it is the mean of several, lows and highs, as long, bound their range.
    """

    label: str
    xs: Sequence[float]
    ys: Sequence[float]
    colour: int = 0
    dash: int = 0
    """Index of the dash pattern of the curve, or of the mark of its dots."""
    best: tuple[float, float] | None = None
    lows: Sequence[float] = ()
    highs: Sequence[float] = ()
    value_text: str | None = None
    """Text in the legend after the label; None: the last value."""
    is_points: bool = False
    """Whether its points are single measurements, not joined by a line."""
    trend: Sequence[tuple[float, float]] = ()
    """If the points were thinned, the means of all values by chunk, sorted."""
    num_left_out: int = 0
    """Number of non-finite values that were thinned out."""
    runs: Sequence[tuple[Sequence[float], Sequence[float]]] = ()
    """If it is the mean of several runs, the curve of each, drawn faintly."""

    @property
    def is_noisy(self) -> bool:
        """Whether it is drawn faintly under its trend; the mean of several runs is a trend already."""
        return not self.runs and is_noisy(self.ys)

    @property
    def is_dots(self) -> bool:
        """Whether it is drawn as dots: points at a single x form no line."""
        return self.is_points or (bool(self.xs) and self.xs[0] == self.xs[-1])


@dataclass(frozen=True)
class PlotArea:
    """The plotting area and its two scales."""

    x: Scale
    y: Scale
    size: tuple[float, float]

    @property
    def left(self) -> float:
        return 18 + 6.6 * max((len(label) for label in self.y.labels), default=1)

    @property
    def right(self) -> float:
        return self.size[0] - _RIGHT

    @property
    def floor(self) -> float:
        return self.size[1] - _BOTTOM

    def across(self, value: float) -> float:
        return self.left + self.x.place(value) * (self.right - self.left)

    def down(self, value: float) -> float:
        return self.floor - self.y.place(value) * (self.floor - TOP)


def curve(frame: PlotArea, line: Line, num_buckets: int) -> str:
    """Return the path of one curve, faint under its means if noisy, with a dot where no line is possible."""
    points = thin(line.xs, line.ys, num_buckets)
    if line.is_dots:
        return _dots(frame, line, [point for point in points if is_drawn(point[1])])
    path = lone = ""
    for piece in _pieces(points):
        if piece[0][0] < piece[-1][0]:
            path += _path(frame, piece)
        else:
            lone += "".join(f"{_path(frame, [point])}h0" for point in piece)
    dots = f'<path class="line c{line.colour} dot" d="{lone}"/>' if lone else ""
    strength = " faint" if line.is_noisy else f" d{line.dash}"
    drawn = f'<path class="line c{line.colour}{strength}" d="{path}"/>' if path else ""
    if line.is_noisy:
        xs, ys = zip(*line.trend, strict=True) if line.trend else (line.xs, line.ys)
        trend = _path(frame, means(xs, ys, _NUM_MEANS))
        drawn += f'<path class="line c{line.colour} d{line.dash}" d="{trend}"/>'
    return drawn + dots


def faint_runs(frame: PlotArea, line: Line, num_buckets: int) -> str:
    """Return the paths of the runs that a curve is the mean of."""
    drawn = ""
    for xs, ys in line.runs:
        points = [point for point in thin(xs, ys, num_buckets) if is_drawn(point[1])]
        if len(points) > 1:
            drawn += f'<path class="line c{line.colour} run" d="{_path(frame, points)}"/>'
        elif points:
            drawn += f'<path class="line c{line.colour} run dot" d="{_path(frame, points)}h0"/>'
    return drawn


def spread(frame: PlotArea, line: Line) -> str:
    """Return the area between the lows and the highs of a curve; a single point is a bar."""
    sides = (-3, 3) if len(line.xs) == 1 else (0,)
    along, back = (
        [
            f"{frame.across(x) + side:.1f} {frame.down(y):.1f}"
            for x, y in zip(line.xs, ys, strict=True)
            if is_drawn(y)
            for side in sides
        ]
        for ys in (line.highs, line.lows)
    )
    path = "L".join([*along, *reversed(back)])
    return f'<path class="range c{line.colour}" d="M{path}Z"/>' if path else ""


def swatch(line: Line) -> str:
    """Return the symbol of the series in the legend."""
    drawn, width = f'<path class="line c{line.colour} d{line.dash}" d="M1 5H31"/>', 32
    if line.is_dots:
        drawn, width = f'<path class="{_marked(line)}" d="M6 5{_shape(line)}"/>', 12
    box = f'viewBox="0 0 {width} 10" style="width:{width}px"'
    return f'<svg class="swatch" {box} aria-hidden="true">{drawn}</svg>'


_Points = Sequence[tuple[float, float]]


def _pieces(points: _Points) -> Iterator[_Points]:
    """Yield the pieces between gaps."""
    piece: list[tuple[float, float]] = []
    for point in points:
        if is_drawn(point[1]):
            piece.append(point)
        elif piece:
            yield piece
            piece = []
    if piece:
        yield piece


def _path(frame: PlotArea, points: _Points) -> str:
    return "M" + "L".join(f"{frame.across(x):.1f} {frame.down(y):.1f}" for x, y in points)


def _dots(frame: PlotArea, line: Line, points: _Points) -> str:
    shape = _shape(line)
    # Two equal values at one x are one dot.
    places = dict.fromkeys(f"M{frame.across(x):.1f} {frame.down(y):.1f}" for x, y in points)
    path = "".join(place + shape for place in places)
    return f'<path class="{_marked(line)}" d="{path}"/>' if path else ""


def _shape(line: Line) -> str:
    return _SHAPES[line.dash % len(_SHAPES)]


def _marked(line: Line) -> str:
    is_hollow = line.dash % NUM_MARKS >= len(_SHAPES)
    return f"mark{' hollow' * is_hollow} c{line.colour}"
