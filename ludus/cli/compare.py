"""Print a comparison of two runs or groups as plain tables."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ludus.core.errors import RunError
from ludus.judge.confidence import MeanInterval
from ludus.judge.directions import Direction
from ludus.show.compared import CONFIDENCE, Comparison, Difference, Estimate, Side, Take
from ludus.show.comparing import compare
from ludus.show.report.scales import interval_text, short_number
from ludus.show.terminal import clean, pass_on, say
from ludus.store.groups import runs_called
from ludus.store.strict_json import one_line

_LONGEST = 48


def print_comparison(
    a: str,
    b: str,
    *,
    root: str,
    metric: str | None,
    take: Take,
    mode: Direction | None,
    as_json: bool,
) -> None:
    """Compare two sides, each a run, a group, or several of them joined by commas, and print it."""
    found = compare(
        _places(a, root), _places(b, root), names=(a, b), metric=metric, take=take, mode=mode
    )
    if as_json:
        pass_on(one_line(found.as_json()) + "\n")
        return
    _print_differences("config", found.config)
    _print_differences("versions and machine", found.facts)
    _print_scores(found)
    _print_verdict(found)
    for note in found.notes:
        say(clean(note))


def _places(side: str, root: str) -> list[str]:
    """Return the locations of the runs that a side names."""
    words = [word.strip() for word in side.split(",")]
    if not all(words):
        raise RunError(f"'{side}' names an empty run; join runs with single commas, as in a,b,c")
    return list(dict.fromkeys(place for word in words for place in runs_called(word, root)))


def _print_differences(title: str, differences: Sequence[Difference]) -> None:
    if not differences:
        say(f"{title}: the same")
        return
    table = _table(title, "A", "B")
    for row in differences:
        table.add_row(*(_cell(cell) for cell in row))
    _print(table)


def _print_scores(found: Comparison) -> None:
    better = "higher" if found.mode == "max" else "lower"
    table = _table(
        f"{found.take} {found.metric}", "runs", "mean", f"{CONFIDENCE:.0%} interval", "of each"
    )
    for letter, side in (("A", found.a), ("B", found.b)):
        mean = side.mean
        each = ", ".join(_seeded(side))
        cells = [
            f"{letter} {side.name}",
            str(len(side.runs)),
            short_number(mean.mean),
            _interval(mean),
        ]
        table.add_row(*(_cell(cell) for cell in cells), Text(clean(each)))
    say("")
    _print(table)
    say(f"{better} is better")


def _seeded(side: Side) -> list[str]:
    return [
        f"seed {seed}: {short_number(score)}"
        for seed, score in zip(side.seeds, side.scores, strict=True)
    ]


def _print_verdict(found: Comparison) -> None:
    say("")
    say(f"A minus B: {_told(found.difference)}")
    if found.probability is not None:
        say(f"probability that a run of A is better: {_told(found.probability)}")
    if len(found.pairs) > 1:
        num = len(found.pairs)
        assert found.paired is not None
        say(
            f"same seeds: A is better in {found.num_better} of {num} pairs; mean of their differences:"
            f" {_told(found.paired)}"
        )


def _told(one: Estimate) -> str:
    interval = "" if one.low is None else f" ({CONFIDENCE:.0%}: {_interval(one)})"
    return short_number(one.value) + interval


def _interval(one: Estimate | MeanInterval) -> str:
    return "none" if one.low is None or one.high is None else interval_text(one.low, one.high)


def _table(*titles: str) -> Table:
    table = Table(box=None)
    for title in titles:
        # A name may have brackets, which rich would take for markup.
        table.add_column(Text(clean(title)))
    return table


def _cell(value: str) -> Text:
    return Text(clean(value if len(value) <= _LONGEST else value[: _LONGEST - 3] + "..."))


def _print(table: Table) -> None:
    # A pipe has no width: each row is one line, however long.
    Console(width=None if sys.stdout.isatty() else 1000).print(table)
