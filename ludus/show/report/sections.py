"""Sections of a report in HTML: config, outcome, best models, environment and events."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ludus.core.exactness import Exact, exact_word
from ludus.show.report.charts import text
from ludus.show.report.curves import AXIS_NAMES
from ludus.show.report.files import ReportedRun, mapping, number
from ludus.show.report.groups import run_labels
from ludus.show.report.scales import short_number
from ludus.store.directory import way_to_resume
from ludus.store.places import below

_MOST_EVENTS = 200
_SHORT_FIGURE, _LONG_FIGURE, _LONGEST_FIGURE = 6, 11, 18
_MOST_TEXTS, _LONGEST_TEXT = 60, 4_000
_SAID_ELSEWHERE = {"time", "event", "pid", "counters", "best", "more_bests", "runners_up"}
_EXACT_WORDS = {
    Exact.PROVED: "proved",
    Exact.EXPECTED: "expected",
    Exact.NO: '<span class="warn">no</span>',
    None: "unknown",
}
_BEST_WORDS = {"min": "lowest", "max": "highest"}


def status_pill(run: ReportedRun) -> str:
    """Return one word for how the run ended."""
    if run.ending is None:
        return '<span class="pill open">not ended</span>'
    word = text(run.ending["event"])
    return f'<span class="pill {word}">{word}</span>'


def status_sentence(run: ReportedRun) -> str:
    """Return how the run ended, and how to resume it if possible."""
    resume = f"<code>{text(way_to_resume(run.place, run.about))}</code>"
    if run.ending is None:
        return f"The run is still going, or was killed; {resume} goes on where it stopped."
    reason = run.ending.get("reason")
    because = f": {text(reason)}" if reason else ""
    match run.ending["event"]:
        case "finished":
            return f"The run came to its end{because}."
        case "stopped":
            return f"The run was stopped before its end{because}."
        case "interrupted":
            return f"The run was interrupted{because}; {resume} goes on where it stopped."
        case "pruned":
            return f"A sweep ended the run early{because}; {resume} goes on where it stopped."
        case _:
            return f"The run failed{because}; fix this, then run {resume}."


def exactness(run: ReportedRun) -> str:
    """Return whether this run, interrupted and resumed, equals one that was never interrupted."""
    ending = mapping(run.ending)
    word = exact_word(ending.get("exact"))
    if word is None:
        return "<b>Exactness:</b> the run has not said whether it can be resumed exactly."
    if word is Exact.PROVED:
        return (
            "<b>Exact: proved.</b> It was killed, resumed and compared, and agreed bit by bit: with the"
            " same kind of machine, versions, threads and device it ends with the same bytes as if never"
            " interrupted."
        )
    if word is Exact.EXPECTED:
        return (
            "<b>Exact: expected.</b> Nothing speaks against it that, interrupted at any instant and"
            " resumed with the same kind of machine, versions, threads and device, it ends with the same"
            " bytes; <code>ludus verify</code> would prove it."
        )
    reasons = ending.get("inexact_because")
    listed = reasons if isinstance(reasons, list) and reasons else ["no reason was recorded"]
    why = "; ".join(text(reason) for reason in listed)
    return f'<b class="warn">Exact: no.</b> {why}.'


def summary_cards(run: ReportedRun) -> str:
    """Return the most important numbers as large cards."""
    cards = []
    for best in run.all_bests:
        words = _BEST_WORDS.get(str(best.get("mode")), "best")
        cards.append(("card wide", _score(best), f"{words} {text(best.get('metric', ''))}"))
    if not cards and run.has_scores:
        cards.append(("card wide", "none", "best score: no best model was recorded"))
    for name, value in run.counters.items():
        if value:
            figure = _figure(value)
            kind = "card wide" if len(figure) > _LONG_FIGURE else "card"
            cards.append((kind, figure, text(AXIS_NAMES.get(name, name))))
    cards.append(("card", _duration(run.wall_seconds), "wall time"))
    shown = (
        f'<div class="{kind}"><b{_length(big)}>{big}</b><span>{low}</span></div>'
        for kind, big, low in cards
    )
    return f'<div class="cards">{"".join(shown)}</div>'


def _length(figure: str) -> str:
    """Return the CSS that keeps a number on one line, smaller if it is long; very long ones are broken."""
    is_fitted = _SHORT_FIGURE < len(figure) <= _LONGEST_FIGURE
    return f' style="--length:{len(figure)}"' if is_fitted else ""


def comparison(runs: Sequence[ReportedRun]) -> str:
    """Return a table with a row for each run."""
    counters = list(dict.fromkeys(name for run in runs for name, n in run.counters.items() if n))
    titles = ["run", "ended", "best", "metric", *(AXIS_NAMES.get(n, n) for n in counters)]
    titles += ["wall time", "seed", "exact"]
    rows = []
    for run, label in zip(runs, run_labels(runs), strict=True):
        cells = [
            status_pill(run),
            _score(mapping(run.best)) if run.has_scores else "-",
            text(mapping(run.best).get("metric", "")),
            *(_figure(run.counters.get(name, 0)) for name in counters),
            _duration(run.wall_seconds),
            text(run.about.get("seed", "")),
            _EXACT_WORDS[exact_word(mapping(run.ending).get("exact"))],
        ]
        rows.append(f"<tr><th>{text(label)}</th>{_cells(titles[1:], cells)}</tr>")
    head = "".join(f"<th>{text(title)}</th>" for title in titles)
    body = "".join(rows)
    return (
        f'<div class="panel"><table class="runs"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def best_model(run: ReportedRun) -> str:
    """Return the location of the best weights by each score, their score, and when they were found.

    For a run that cannot have a best model this is empty.
    """
    if not run.has_scores:
        return ""
    if not run.all_bests:
        return _panel("<p>No best model was recorded.</p>")
    tables = [_table(_best_rows(run, best)) for best in run.all_bests]
    if run.runners_up:
        tables.append("<p>The next best models that were kept:</p>")
        tables += [_table(_best_rows(run, one)) for one in run.runners_up]
    return _panel("".join(tables))


def _best_rows(run: ReportedRun, best: Mapping[str, Any]) -> dict[str, str]:
    counters = mapping(best.get("counters"))
    when = ", ".join(
        f"{_plain_figure(value)} {AXIS_NAMES.get(name, name)}"
        for name, value in counters.items()
        if value
    )
    return {
        "model": below(run.place, str(best.get("model", ""))),
        "score": f"{_plain_score(best)} ({best.get('metric', 'unnamed metric')})",
        "when": f"after {when}" if when else "not recorded",
    }


def environment(run: ReportedRun) -> str:
    """Return the environment: what the run's bytes depend on besides its config."""
    about = run.about
    git = mapping(about.get("git"))
    commit = f"{git.get('commit')}{' with uncommitted changes' if git.get('dirty') else ''}"
    rows: dict[str, Any] = {
        "kind": about.get("kind"),
        "seed": about.get("seed"),
        "started from": about.get("script") or about.get("origin"),
        "created": about.get("created"),
        "directory": run.place,
        "config hash": about.get("config_hash"),
        "git commit": commit if git else "not in a git repository",
        "host": about.get("host"),
        **mapping(about.get("machine")),
        **mapping(about.get("versions")),
    }
    return _panel(_table({key: value for key, value in rows.items() if value is not None}))


def events(run: ReportedRun) -> str:
    """Return the events of the run, oldest first; of very many, the first and the newest."""
    if not run.events:
        return _panel("<p>No event was recorded.</p>")
    shown: list[Mapping[str, Any] | None] = list(run.events)
    if len(shown) > _MOST_EVENTS:
        shown = [shown[0], None, *shown[-_MOST_EVENTS + 1 :]]
    rows = []
    for event in shown:
        if event is None:
            left_out = f"{len(run.events) - _MOST_EVENTS:,} events left out"
            rows.append(f'<tr><td class="time">…</td><td>{left_out}</td><td></td></tr>')
            continue
        word = str(event.get("event", "unnamed"))
        mark = "bad" if "failed" in word else "plain"
        details = {
            k: v for k, v in event.items() if k not in _SAID_ELSEWHERE and v not in (None, [])
        }
        said = "; ".join(
            f"{key}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
            for key, value in details.items()
        )
        rows.append(
            f'<tr><td class="time">{text(_moment(event.get("time")))}</td>'
            f'<td class="{mark}">{text(word)}</td><td>{text(said)}</td></tr>'
        )
    return _panel(f'<table class="events"><tbody>{"".join(rows)}</tbody></table>')


def texts(run: ReportedRun, *, without: Collection[str] = ()) -> str:
    """Return the last text of each name except these; very long ones are cut."""
    blocks = []
    shown = [(name, said) for name, said in run.texts.items() if name not in without]
    for name, said in shown[:_MOST_TEXTS]:
        left_out = len(said) - _LONGEST_TEXT
        more = f"\n… {left_out:,} more characters" if left_out > 0 else ""
        blocks.append(
            _panel(f"<h3>{text(name)}</h3><pre>{text(said[:_LONGEST_TEXT] + more)}</pre>")
        )
    return "".join(blocks)


def config(run: ReportedRun) -> str:
    """Return the full resolved config."""
    return _panel(f"<pre>{text(run.config)}</pre>" if run.config else "<p>There is none.</p>")


def _panel(body: str) -> str:
    return f'<div class="panel">{body}</div>'


def _table(rows: Mapping[str, object]) -> str:
    body = "".join(
        f"<tr><th>{text(key)}</th><td>{text(value)}</td></tr>" for key, value in rows.items()
    )
    return f"<table><tbody>{body}</tbody></table>"


def _cells(titles: Sequence[str], cells: Sequence[str]) -> str:
    """Return the cells of a row, each with the title that a narrow page shows with it."""
    named = zip(titles, cells, strict=True)
    return "".join(f'<td data-title="{text(title)}">{cell}</td>' for title, cell in named)


def _plain_score(best: Mapping[str, Any]) -> str:
    score = number(best.get("score"))
    return "none" if score is None else short_number(score)


def _score(best: Mapping[str, Any]) -> str:
    return text(_plain_score(best))


def _plain_figure(value: object) -> str:
    found = number(value)
    return str(value) if found is None else short_number(found)


def _figure(value: object) -> str:
    return text(_plain_figure(value))


def _moment(seconds: object) -> str:
    """Return a wall-clock time in UTC."""
    try:
        moment = datetime.datetime.fromtimestamp(number(seconds) or math.nan, datetime.UTC)
    except (ValueError, OverflowError, OSError):
        return "at an unknown time"
    return moment.strftime("%Y-%m-%d %H:%M:%S UTC")


def _duration(seconds: float) -> str:
    if seconds <= 0:
        return "unknown"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60:,} h {minutes % 60} min"
