"""Scales of a chart: round ticks, short labels and thinned curves."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

LARGEST = 1e300
"""Larger numbers are drawn as gaps, because the span between two of them would overflow."""

SMALLEST = 1e-290
"""A narrower span is drawn as none, because dividing by it would overflow."""

_UNITS = ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e3, 1e4, "k"))
"""Each unit, the number from which it is used, and its symbol."""


@dataclass(frozen=True)
class Scale:
    """A range of numbers along an axis, with its ticks."""

    low: float
    high: float
    ticks: Sequence[float]
    labels: Sequence[str]
    is_log: bool = False

    def place(self, value: float) -> float:
        """Return the position of the value, 0 at the low end and 1 at the high end."""
        if self.is_log:
            span = math.log(self.high) - math.log(self.low)
            return (math.log(value) - math.log(self.low)) / span
        return (value - self.low) / (self.high - self.low)


def value_scale(values: Sequence[float]) -> Scale:
    """Return the scale of a y axis: logarithmic if the values span many orders of magnitude."""
    ordered = sorted(values)
    low, high = ordered[0], ordered[-1]
    if low > SMALLEST:
        near_low, near_high = ordered[len(ordered) // 20], ordered[-1 - len(ordered) // 20]
        if near_high / near_low > 100 or high / near_high > 100:
            return _log_scale(low, high)
    if high - low <= max(1e-9 * max(abs(low), abs(high)), SMALLEST):
        margin = abs(low) * 0.1 if abs(low) > SMALLEST else 1.0
    else:
        margin = (high - low) * 0.06
    starts_at_zero = 0 <= low < 0.3 * high
    return linear_scale(0.0 if starts_at_zero else low - margin, high + margin, num_ticks=6)


def counter_scale(low: float, high: float) -> Scale:
    """Return the scale of an x axis of counts: every tick is an integer."""
    if 0 <= low < 0.2 * high:
        low = 0.0
    elif low == high:
        low, high = max(low - 1, 0.0), high + 1
    return linear_scale(low, high, num_ticks=6, is_whole=True)


def linear_scale(low: float, high: float, *, num_ticks: int, is_whole: bool = False) -> Scale:
    """Return a linear scale from low to high, which must differ, with ticks at round numbers."""
    rough = (high - low) / num_ticks
    magnitude = 10.0 ** math.floor(math.log10(rough))
    multiples = (1, 2, 5, 10) if is_whole and magnitude < 10 else (1, 2, 2.5, 5, 10)
    step = next((m * magnitude for m in multiples if m * magnitude >= rough), 10 * magnitude)
    if is_whole:
        step = max(step, 1.0)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    ticks = [index * step for index in range(first, last + 1)]
    return Scale(low, high, ticks, _labels(ticks, step))


def thin(xs: Sequence[float], ys: Sequence[float], buckets: int) -> list[tuple[float, float]]:
    """Thin a curve: keep the lowest and the highest point and a gap in each bucket along x.

    xs must be sorted; the first and last points are always kept. A non-finite y is a gap.
    """
    if len(xs) <= 2 * buckets:
        return list(zip(xs, ys, strict=True))
    kept = {0, len(xs) - 1}
    for indices in _buckets(xs, buckets):
        drawn = [index for index in indices if is_drawn(ys[index])]
        if drawn:
            kept.update((min(drawn, key=ys.__getitem__), max(drawn, key=ys.__getitem__)))
        if len(drawn) < len(indices):
            kept.add(next(index for index in indices if not is_drawn(ys[index])))
    return [(xs[index], ys[index]) for index in sorted(kept)]


def means(xs: Sequence[float], ys: Sequence[float], buckets: int) -> list[tuple[float, float]]:
    """Return the mean point of each bucket along x that has anything to draw."""
    points = []
    for indices in _buckets(xs, buckets):
        drawn = [index for index in indices if is_drawn(ys[index])]
        if drawn:
            middle = math.fsum(xs[index] / len(drawn) for index in drawn)
            points.append((middle, math.fsum(ys[index] / len(drawn) for index in drawn)))
    return points


def is_noisy(ys: Sequence[float]) -> bool:
    """Return whether a curve of many points is so noisy that its trend is hidden."""
    drawn = [y for y in ys if is_drawn(y)]
    if len(drawn) < 200:
        return False
    travelled = sum(abs(b - a) for a, b in itertools.pairwise(drawn))
    return travelled > 10 * (max(drawn) - min(drawn)) > 0


def is_drawn(value: float) -> bool:
    """Return whether a value can be drawn."""
    return abs(value) <= LARGEST


def short_number(value: float) -> str:
    """Return a number for people: integers with thousands separators, others to five digits."""
    if math.isfinite(value) and abs(value) < 1e15 and (abs(value) >= 1e4 or value == int(value)):
        return f"{value:,.0f}"
    return f"{value:,.5g}"


def interval_text(low: float, high: float) -> str:
    """Return an interval for people."""
    return f"{short_number(low)} to {short_number(high)}"


def _buckets(xs: Sequence[float], buckets: int) -> Iterator[range]:
    """Yield the indices that fall into each of `buckets` equal intervals of the sorted xs."""
    width = (xs[-1] - xs[0]) / buckets or 1.0
    numbered = enumerate(min(int((x - xs[0]) / width), buckets - 1) for x in xs)
    for _, members in itertools.groupby(numbered, key=lambda pair: pair[1]):
        indices = [index for index, _ in members]
        yield range(indices[0], indices[-1] + 1)


def _log_scale(low: float, high: float) -> Scale:
    bottom, top = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((top - bottom) / 6))
    ticks = [10.0**power for power in range(max(bottom, -300), min(top, 300) + 1, every)]
    inside = [tick for tick in ticks if low * 0.9 <= tick <= high * 1.1]
    return Scale(
        min([low * 0.9, *inside]),
        max([high * 1.1, *inside]),
        inside,
        [_exponent(tick, 0) if not 1e-3 <= tick <= 1e4 else f"{tick:g}" for tick in inside],
        is_log=True,
    )


def _labels(ticks: Sequence[float], step: float) -> list[str]:
    """Return labels with just as many decimals as the step between the ticks needs."""
    largest = max((abs(tick) for tick in ticks), default=0.0)
    if largest >= 1e13 or 0 < largest < 1e-3:
        power = math.floor(math.log10(largest))
        decimals = _decimals(step / 10.0**power)
        return ["0" if tick == 0 else _exponent(tick, decimals, power) for tick in ticks]
    unit, suffix = next(
        ((u, sign) for u, start, sign in _UNITS if largest >= start and step >= u / 100), (1.0, "")
    )
    decimals = _decimals(step / unit)
    labels = [f"{tick / unit:,.{decimals}f}" for tick in ticks]
    if suffix and decimals:
        labels = [label.rstrip("0").rstrip(".") for label in labels]
    return ["0" if t == 0 else label + suffix for t, label in zip(ticks, labels, strict=True)]


def _decimals(step: float) -> int:
    """Return the number of decimals that show every multiple of the step exactly, at most ten."""
    for decimals in range(10):
        if abs(round(step, decimals) - step) < 1e-6 * step:
            return decimals
    return 10


def _exponent(value: float, decimals: int, power: int | None = None) -> str:
    exponent = math.floor(math.log10(abs(value)) + 1e-9) if power is None else power
    return f"{value / 10.0**exponent:.{decimals}f}e{exponent}"
