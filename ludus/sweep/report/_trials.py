"""The best config of a sweep, the table of its trials, and their scores one after the other."""

from __future__ import annotations

import shlex

from ludus.config import strict_yaml
from ludus.judge.scores import is_better
from ludus.show.report.charts import Line, line_chart, text
from ludus.show.report.scales import interval_text, is_drawn, short_number
from ludus.sweep.display import ranked
from ludus.sweep.report._read import ReportedSweep, number_words, shown
from ludus.sweep.trials import SweepTrial

_MOST_ROWS, _OPEN_ROWS = 500, 12
_STATES = {"complete": "finished", "pruned": "pruned", "failed": "failed", "open": "open"}
"""The class of a pill, by the state of a trial."""


def best(sweep: ReportedSweep) -> str:
    """Return the best config, ready to be copied, under its score and what the sweep has done."""
    found = sweep.best
    counts = {state: sum(t.state == state for t in sweep.trials) for state in _STATES}
    summary = (
        ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "none yet"
    )
    cards = [("card", short_number(len(sweep.trials)), f"{sweep.unit}s: {summary}")]
    if found is None or found.score is None:
        reasons = [trial.reason for trial in sweep.trials if trial.reason]
        why = f" The first reason: {text(reasons[0])}." if reasons else ""
        return (
            f'{_cards(cards)}<div class="panel"><p>No {sweep.unit} is complete yet.{why}</p></div>'
        )
    words = "lowest" if sweep.mode == "min" else "highest"
    score = short_number(found.score.mean)
    cards.insert(0, ("card wide", score, f"{words} {sweep.config.metric.name}{_interval(found)}"))
    cards.append(("card", str(found.number), f"best {sweep.unit}"))
    rows = "".join(
        f"<tr><th>{text(path)}</th><td>{text(shown(value))}</td></tr>"
        for path, value in found.point.items()
    )
    place = shlex.quote(f"{sweep.place}/best.yaml")
    parts = [_cards(cards), f'<div class="panel"><table><tbody>{rows}</tbody></table></div>']
    if sweep.storage.exists("best.yaml"):
        whole = sweep.storage.read("best.yaml", limit=strict_yaml.MAX_BYTES).decode(
            errors="replace"
        )
        parts.append(
            f'<div class="panel"><p><code>ludus train {text(place)}</code> trains it.</p></div>'
            "<details><summary>The whole config, to be copied: best.yaml</summary>"
            f'<div class="panel"><pre>{text(whole)}</pre></div></details>'
        )
    return "".join(parts)


def _cards(cards: list[tuple[str, str, str]]) -> str:
    shown_cards = (
        f'<div class="{kind}"><b>{text(big)}</b><span>{text(low)}</span></div>'
        for kind, big, low in cards
    )
    return f'<div class="cards">{"".join(shown_cards)}</div>'


def _interval(trial: SweepTrial) -> str:
    score = trial.score
    if score is None or score.low is None or score.high is None:
        return ", one seed"
    return f", {interval_text(score.low, score.high)} over {number_words(score.count, 'seed')}"


def trials(sweep: ReportedSweep) -> str:
    """Return the table of the trials, the best first; of many all but the first are folded."""
    if not sweep.trials:
        return '<div class="panel"><p>Nothing was tried yet.</p></div>'
    rows = ranked(sweep.trials, sweep.mode)
    paths = list(sweep.space)
    left_out = f"<p>{len(rows) - _MOST_ROWS:,} more are in trials.json.</p>" * (
        len(rows) > _MOST_ROWS
    )
    first = _table(sweep, rows[:_OPEN_ROWS], paths)
    others = rows[_OPEN_ROWS:_MOST_ROWS]
    if not others:
        return first
    return (
        f"{first}<details><summary>The other {len(rows) - _OPEN_ROWS:,}</summary>"
        f"{_table(sweep, others, paths)}{left_out}</details>"
    )


def _table(sweep: ReportedSweep, rows: list[SweepTrial], paths: list[str]) -> str:
    names = [path.split(".")[-1] for path in paths]
    keys = [n if names.count(n) == 1 else p for n, p in zip(names, paths, strict=True)]
    titles = [sweep.unit, "state", sweep.config.metric.name, "", *keys]
    has_reasons = any(trial.reason for trial in rows)
    titles += ["why"] * has_reasons
    head = "".join(f"<th>{text(title)}</th>" for title in titles)
    body = "".join(_row(sweep, trial, paths, has_reasons=has_reasons) for trial in rows)
    table = f'<table class="ranks"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    return f'<div class="panel">{table}</div>'


def _row(sweep: ReportedSweep, trial: SweepTrial, paths: list[str], *, has_reasons: bool) -> str:
    mean = half = ""
    if trial.score is not None:
        mean = short_number(trial.score.mean)
        half = "" if trial.score.half is None else f"± {trial.score.half:.2g}"
    else:
        values = [run.value for run in trial.runs.values() if run.value is not None]
        mean = " ".join(f"({short_number(value)})" for value in values)
    point = [shown(trial.point[path]) if path in trial.point else "" for path in paths]
    cells = "".join(f"<td>{text(one)}</td>" for one in (mean, half, *point))
    pill = f'<span class="pill {_STATES[trial.state]}">{trial.state}</span>'
    why = f'<td class="wide" style="min-width:18em">{text(trial.reason or "")}</td>' * has_reasons
    return f"<tr><td>{trial.number}</td><td>{pill}</td>{cells}{why}</tr>"


def history(sweep: ReportedSweep) -> str:
    """Return the chart of the scores by trial, with the best so far."""
    scored = [
        (float(trial.number), trial.score.mean)
        for trial in sweep.trials
        if trial.state == "complete" and trial.score is not None and is_drawn(trial.score.mean)
    ]
    if len(scored) < 2:
        return ""
    peaks: list[float] = []
    for _, value in scored:
        before = peaks[-1] if peaks else None
        peaks.append(value if is_better(value, before, sweep.mode) or before is None else before)
    xs = [x for x, _ in scored]
    lines = [
        Line("best so far", xs, peaks, colour=1),
        Line("a trial", xs, [y for _, y in scored], is_points=True, value_text=""),
    ]
    chart = line_chart(f"{sweep.config.metric.name} by trial", lines, x_label="trial")
    return f'<div class="one">{chart}</div>'
