"""Format scores, numbers, times and positions for a display, safe for any terminal."""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from ludus.judge.directions import known_direction
from ludus.show.names import most_informative
from ludus.show.progress import Place
from ludus.show.speed import main_speed
from ludus.show.terminal import clean

Value = float | str

_LONGEST_LINE = 159
_LONGEST_POSITION, _LONGEST_NAME = 60, 48
_BETWEEN = "  "


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


def line(
    record: Mapping[str, Value],
    counters: Mapping[str, int],
    place: Place | None,
    *,
    speeds: Mapping[str, float] | None = None,
    scores: Collection[str] = (),
) -> str:
    """Return a record as one line: position, counters, metrics, time left, and speed.

    Of metrics for which there is no room the most informative are shown, the judged scores first.
    """
    # The counter of a loop that is open is shown as its position.
    loops = {loop.name for loop in place.loops} if place and not place.is_over else set()
    counted = [f"{name} {count}" for name, count in counters.items() if count and name not in loops]
    ends: list[str] = []
    if place is not None:
        at = place.doing if place.is_over else where(place) or place.doing
        counted = [shorten(clean(at), _LONGEST_POSITION), *counted]
        ends = [pace(place), speed(speeds or {})]
    words = _worded(record)
    # Counters yield to the figure that says most.
    first = max((len(words[name]) for name in _ranked(record, scores)[:1]), default=0)
    taken = sum(len(word) + len(_BETWEEN) for word in ends if word)
    room = _LONGEST_LINE - taken - len(_BETWEEN)
    head = filled(
        counted, min(_LONGEST_LINE // 2, room - first - len(_more(len(words)) + _BETWEEN))
    )
    found = figures(record, room - len(_BETWEEN.join(head)), scores)
    return _BETWEEN.join(filter(None, [*head, *found, *ends]))


def filled(words: Sequence[str], room: int) -> list[str]:
    """Return the first word, and those after it that fit as well."""
    kept: list[str] = []
    for word in words:
        if not kept or len(_BETWEEN.join([*kept, word])) <= room:
            kept.append(word)
    return kept


def wrapped(words: Sequence[str]) -> list[str]:
    """Return words as lines, each as long as a line may be."""
    lines: list[str] = []
    for word in words:
        longer = f"{lines[-1]}{_BETWEEN}{word}" if lines else word
        if lines and len(longer) <= _LONGEST_LINE:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def figures(
    record: Mapping[str, Value], room: int = _LONGEST_LINE, scores: Collection[str] = ()
) -> list[str]:
    """Return a record as words that fit in this room: all of them, or the most informative."""
    words = _worded(record)
    if len(_BETWEEN.join(words.values())) <= room:
        return list(words.values())
    kept: list[str] = []
    for name in _ranked(record, scores):
        if len(_BETWEEN.join([*kept, words[name], _more(len(words))])) <= room:
            kept.append(words[name])
    return [*kept, _more(len(words) - len(kept))]


def _worded(record: Mapping[str, Value]) -> dict[str, str]:
    return {
        name: f"{shorten(clean(name), _LONGEST_NAME)} {shorten(number(value), _LONGEST_NAME)}"
        for name, value in record.items()
    }


def _ranked(record: Mapping[str, Value], scores: Collection[str]) -> list[str]:
    return scores_first(most_informative(record), scores)


def scores_first(names: Iterable[str], scores: Collection[str]) -> list[str]:
    """Return the names, the judged scores first."""
    return sorted(names, key=lambda name: name not in scores)


def _more(num_left_out: int) -> str:
    return f"(+ {num_left_out} more)"


def speed(speeds: Mapping[str, float]) -> str:
    """Return the main speed as `1,204 env_steps/s`; empty if nothing is known."""
    found = main_speed(speeds)
    return "" if found is None else f"{per_second(found[1])} {found[0]}/s"


def per_second(rate: float) -> str:
    """Return a number of steps a second in three significant digits."""
    return f"{rate:,.0f}" if rate >= 100 else f"{rate:.3g}"


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
