"""Episodes: results of each iteration of a run of text; tokens, money and time of each stage; transcripts."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from ludus.show.report.charts import text
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun
from ludus.show.report.groups import run_labels
from ludus.show.report.scales import short_number
from ludus.store.places import is_url
from ludus.text.report._metrics import SPLITS, IterationFigures, iterations, stage_seconds

_MOST_ITERATIONS = 200
_MOST_AGENTS = 8
_FOLDER = "transcripts"
_READ = "read"
_PAGE = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)-(?P<iteration>\d{1,9})\.html")


def episodes(runs: Sequence[ReportedRun]) -> Section | None:
    """Return tables for each run of text; None where there is none."""
    of_text = [
        (label, run) for run, label in zip(runs, run_labels(runs), strict=True) if _is_text(run)
    ]
    if not of_text:
        return None
    bodies = [
        ("" if len(runs) == 1 else f"<h3>{text(label)}</h3>") + _body(run, is_alone=len(runs) == 1)
        for label, run in of_text
    ]
    return Section("Episodes", "".join(bodies))


def _is_text(run: ReportedRun) -> bool:
    is_kind = str(run.about.get("kind")).startswith("pure_text")
    return run.is_run and (is_kind or bool(run.names(_FOLDER)))


def _body(run: ReportedRun, *, is_alone: bool) -> str:
    timing = [*run.read_lines("timing.jsonl")]
    found = iterations([*run.read_lines("metrics.jsonl"), *timing])
    pages = _pages(run, is_alone=is_alone)
    parts = [
        _by_iteration(
            found, {place: link for (word, place), link in pages.items() if word == _READ}
        )
        + _more([link for (word, _), link in pages.items() if word != _READ]),
        _by_stage(found, stage_seconds(timing)),
        _by_agent(found),
    ]
    shown = "".join(f'<div class="panel">{part}</div>' for part in parts if part)
    return shown or '<div class="panel"><p>No episode was played yet.</p></div>'


def _by_iteration(found: Sequence[IterationFigures], pages: dict[int, str]) -> str:
    """Return a row for each iteration, with a link to its transcripts."""
    agents = _words(found, "agent", "reward")[:_MOST_AGENTS]
    columns = [
        *((f"{_words_of(split)} accuracy", "accuracy", {"split": split}) for split in SPLITS),
        *(
            (f"{split} reward of {agent}", "reward", {"split": split, "agent": agent})
            for split in SPLITS[:1]
            for agent in agents
        ),
    ]
    columns = [
        column
        for column in columns
        if any(one.total(column[1], **column[2]) is not None for one in found)
    ]
    sums = [
        kind for kind in ("tokens", "cost") if any(one.total(kind) is not None for one in found)
    ]
    by_number = {one.number: one for one in found}
    numbers = sorted(set(by_number) | set(pages))
    rows, before = [], dict.fromkeys(sums, 0.0)
    for number in numbers:
        one = by_number.get(number, IterationFigures(number, {}))
        cells = [_figure(one.total(kind, **which)) for _, kind, which in columns]
        for kind in sums:
            total = one.total(kind)
            cells.append(_figure(None if total is None else total - before[kind]))
            before[kind] = before[kind] if total is None else total
        rows.append([str(number), pages.get(number, ""), *cells])
    titles = ["iteration", "transcripts", *(title for title, _, _ in columns), *sums]
    left_out = len(rows) - _MOST_ITERATIONS
    more = f"<p>{left_out:,} earlier iterations are in metrics.jsonl.</p>" if left_out > 0 else ""
    return _table(titles, rows[-_MOST_ITERATIONS:]) + more


def _by_stage(found: Sequence[IterationFigures], seconds: dict[str, float]) -> str:
    """Return what each stage has used: tokens, money and time."""
    last = _last(found)
    stages = list(dict.fromkeys([*_words(found, "stage", "tokens", "cost"), *seconds]))
    rows = [
        [
            text(_words_of(stage)),
            _figure(last.total("tokens", stage=stage)),
            _figure(last.total("cost", stage=stage)),
            _time(seconds.get(stage)),
        ]
        for stage in stages
    ]
    return _table(["stage", "tokens", "cost", "time"], rows)


def _by_agent(found: Sequence[IterationFigures]) -> str:
    """Return what each agent has used: tokens by part, and money."""
    last = _last(found)
    parts = _words(found, "part", "tokens")
    rows = [
        [
            text(agent),
            *(_figure(last.total("tokens", agent=agent, part=part)) for part in parts),
            _figure(last.total("cost", agent=agent)),
        ]
        for agent in _words(found, "agent", "tokens", "cost")
    ]
    return _table(["agent", *(f"{part} tokens" for part in parts), "cost"], rows)


def _last(found: Sequence[IterationFigures]) -> IterationFigures:
    """Return the last value of every figure; a sum stays what it was where it is not logged again."""
    figures = {figure: value for one in found for figure, value in one.figures.items()}
    return IterationFigures(found[-1].number if found else 0, figures)


def _words(found: Iterable[IterationFigures], field: str, *kinds: str) -> list[str]:
    """Return the words that stand in a field of the figures of some kinds, in order."""
    words = {
        getattr(figure, field): None
        for one in found
        for figure in one.figures
        if figure.kind in kinds and getattr(figure, field)
    }
    return list(words)


def _more(links: Sequence[str]) -> str:
    return f"<p>Further transcripts: {', '.join(links)}</p>" if links else ""


def _pages(run: ReportedRun, *, is_alone: bool) -> dict[tuple[str, int], str]:
    """Return a link to each page of transcripts, by what it shows and the number of the iteration."""
    found: dict[tuple[str, int], str] = {}
    for name in run.names(_FOLDER):
        if page := _PAGE.fullmatch(name):
            # The page of one run lies in its directory; that of several may lie anywhere.
            place = f"{_FOLDER}/{name}"
            if not is_alone:
                place = f"{run.place}/{place}" if is_url(run.place) else _uri(run.place, place)
            number = int(page["iteration"])
            word = _words_of(page["name"].removeprefix("test-"))
            word = _READ if page["name"] == "iteration" else f"{word} {number}"
            found[word, number] = f'<a href="{text(place)}">{text(word)}</a>'
    return found


def _words_of(name: str) -> str:
    return name.replace("_", " ")


def _uri(place: str, name: str) -> str:
    return (Path(place).absolute() / name).as_uri()


def _table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells that are HTML; columns without a figure are left out, and so is one alone."""
    kept = [n for n in range(len(titles)) if n == 0 or any(row[n] not in ("", "-") for row in rows)]
    if len(kept) < 2:
        return ""
    head = "".join(f"<th>{text(titles[n])}</th>" for n in kept)
    body = "".join(
        "<tr>"
        + "".join(f"<{'td' if n else 'th'}>{row[n]}</{'td' if n else 'th'}>" for n in kept)
        + "</tr>"
        for row in rows
    )
    return (
        f'<table class="numbers shares"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _figure(value: float | None) -> str:
    return "-" if value is None else text(short_number(value))


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "-"
    if seconds < 120:
        return f"{seconds:.1f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60:,} h {minutes % 60} min"
