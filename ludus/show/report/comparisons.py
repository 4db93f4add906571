"""Sections that compare groups of runs: the keys in which their configs differ, and their scores."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.judge.confidence import mean_interval
from ludus.show.report.band import CONFIDENCE
from ludus.show.report.charts import text
from ludus.show.report.files import ReportedRun, mapping, number
from ludus.show.report.groups import (
    RunGroup,
    differing_keys,
    merged_config,
    repeat_notes,
    shown_value,
)
from ludus.show.report.scales import interval_text, is_drawn, short_number

_MOST_KEYS = 60
_LONGEST_VALUE = 200


def differences(groups: Sequence[RunGroup]) -> str:
    """Return a table of the keys in which the groups' configs differ; empty for a single group."""
    if len(groups) < 2:
        return ""
    configs = [merged_config(one.configs) for one in groups]
    if not all(configs):
        missing = [one.name for one, config in zip(groups, configs, strict=True) if not config]
        said = (
            f"No config is recorded in run.json of {', '.join(missing)}, so keys are not compared."
        )
        return f'<div class="panel"><p>{text(said)}</p></div>'
    keys = differing_keys(configs)
    if not keys:
        return '<div class="panel"><p>The configs are equal but for the seed.</p></div>'
    head = "".join(f"<th>{text(title)}</th>" for title in ["key", *(one.name for one in groups)])
    rows = [
        f"<tr><th>{text(key)}</th>"
        + "".join(f"<td>{text(_cut(shown_value(config, key)))}</td>" for config in configs)
        + "</tr>"
        for key in keys[:_MOST_KEYS]
    ]
    left = len(keys) - _MOST_KEYS
    more = f"<p>{left:,} more keys differ.</p>" if left > 0 else ""
    return (
        f'<div class="panel"><table class="differences"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>{more}</div>"
    )


def group_table(runs: Sequence[ReportedRun], groups: Sequence[RunGroup]) -> str:
    """Return a table of the groups' best scores, the mean with its interval; empty if there is no group."""
    if all(len(one.runs) < 2 for one in groups):
        return ""
    titles = ["group", "runs", "seeds", "metric", "mean of the best", f"{CONFIDENCE:.0%} interval"]
    rows = []
    for group in groups:
        members = [runs[index] for index in group.counted]
        seeds = ", ".join(str(run.about.get("seed", "?")) for run in members)
        metrics = dict.fromkeys(str(mapping(run.best).get("metric")) for run in members if run.best)
        scores = [
            score
            for run in members
            if (score := number(mapping(run.best).get("score"))) is not None and is_drawn(score)
        ]
        mean, interval = "-", "-"
        if scores and len(metrics) == 1:
            found = mean_interval(scores, confidence=CONFIDENCE)
            mean = short_number(found.mean)
            if len(scores) < len(members):
                mean += f" (of {len(scores)} runs)"
            if found.low is not None and found.high is not None:
                interval = interval_text(found.low, found.high)
        cells = [str(len(members)), seeds, ", ".join(metrics), mean, interval]
        named = zip(titles[1:], cells, strict=True)
        row = "".join(f'<td data-title="{text(title)}">{text(cell)}</td>' for title, cell in named)
        rows.append(f"<tr><th>{text(group.name)}</th>{row}</tr>")
    head = "".join(f"<th>{text(title)}</th>" for title in titles)
    repeats = {index: first for one in groups for index, first in one.repeats.items()}
    notes = "".join(f"<p>{text(note)}</p>" for note in repeat_notes(runs, repeats))
    return (
        f'<div class="panel"><table class="runs"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table>{notes}</div>"
    )


def _cut(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else value[: _LONGEST_VALUE - 1] + "…"
