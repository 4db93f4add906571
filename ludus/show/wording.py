"""Format scores, numbers, times and positions for a display, safe for any terminal."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from rich.cells import cell_len

from ludus.judge.directions import known_direction
from ludus.show.names import MANY, informative_first
from ludus.show.progress import Place
from ludus.show.terminal import clean

Value = float | str

_MOST_FIGURES = 10


@dataclass(frozen=True, slots=True)
class ShownScore:
    """One evaluation metric: its last value, the previous one, and the best if it has one."""

    last: Value
    previous: Value | None = None
    best: float | None = None

    @classmethod
    def after(cls, before: ShownScore | None, name: str, value: Value) -> ShownScore:
        """Return the score of this metric after one more value."""
        best, sign = before.best if before else None, better(name)
        if sign and isinstance(value, int | float) and math.isfinite(value):
            best = value if best is None else sign * max(sign * best, sign * value)
        return cls(value, before.last if before else None, best)


def better(name: str) -> int:
    """Return 1 if higher is better for this metric, -1 if lower is, 0 if unknown."""
    direction = known_direction(name)
    return 0 if direction is None else 1 if direction == "max" else -1


def where(place: Place) -> str:
    """Return the open loops as `epoch 3/30 step 12/23`."""
    rounds = ((loop, "" if loop.total is None else f"/{loop.total}") for loop in place.loops)
    return " ".join(f"{loop.name} {loop.reached}{of}" for loop, of in rounds)


def words(
    record: Mapping[str, Value], counters: Mapping[str, int], place: Place | None
) -> list[str]:
    """Return a record as words for one line: position, counters, metrics, time left."""
    loops = {loop.name for loop in place.loops} if place else set()
    counted = [f"{name} {count}" for name, count in counters.items() if count and name not in loops]
    found = figures(record)
    if place is None:
        return [*counted, *found]
    return [where(place) or place.doing, *counted, *found, pace(place)]


def figures(record: Mapping[str, Value]) -> list[str]:
    """Return a record as words: all of a short one, the most informative of a long one."""
    names = informative_first(record)
    shown = names if len(names) <= MANY else names[:_MOST_FIGURES]
    found = [f"{name} {number(record[name])}" for name in shown]
    left_out = len(names) - len(shown)
    return [*found, f"(+ {left_out} more in metrics.jsonl)"] if left_out else found


def pace(place: Place, *, elapsed: bool = False) -> str:
    """Return `12% 0:41 left`, or the elapsed time if that is unknown; both times if `elapsed`."""
    words = [] if place.fraction is None else [f"{place.fraction:.0%}"]
    words += [f"{duration(place.elapsed)} elapsed"] if elapsed or not place.left else []
    words += [f"{duration(place.left)} left"] if place.left else []
    return "  ".join(words) if elapsed else " ".join(words)


def duration(seconds: float) -> str:
    """Return a time as `0:41`, `1:02:33` or `2d 1:02:33`."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if not hours:
        return f"{minute}:{second:02}"
    return (f"{days}d " if days else "") + f"{hour}:{minute:02}:{second:02}"


def number(value: Value) -> str:
    """Return a value in four significant digits, a large or whole one without its fraction."""
    if not isinstance(value, int | float):
        return clean(str(value))
    is_whole = math.isfinite(value) and value == int(value)
    if (is_whole or abs(value) >= 1e3) and abs(value) < 1e9:
        return f"{value:.0f}"
    return f"{value:.4g}"


@functools.lru_cache(maxsize=1024)
def shorten(text: str, width: int) -> str:
    """Return a text of at most this many cells, shortened in the middle: both ends are informative."""
    if cell_len(text) <= width:
        return text
    head, tail = text[: (width - 1) // 3], text
    while tail and cell_len(head) + 1 + cell_len(tail) > width:
        tail = tail[1:]
    return f"{head}…{tail}"
