"""Tested models: the results of each model of an earlier run that `rerun_tests` has tested."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ludus.judge.directions import known_direction
from ludus.show.names import by_information
from ludus.show.report.charts import text
from ludus.show.report.curves import AXIS_NAMES
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun, mapping, number
from ludus.show.report.groups import run_labels
from ludus.show.report.scales import short_number

_MOST_FIGURES = 8
_MOST_MODELS = 200
_TEST = "test/"
# The progress of the earlier run is shown by the first of these that it counted.
_COUNTERS = ("iteration", "epoch", "round", "env_steps", "opt_steps")


@dataclass(frozen=True)
class _Tested:
    """One model, and its test metrics."""

    name: str
    counters: Mapping[str, float]
    figures: Mapping[str, float]


def tested_models(runs: Sequence[ReportedRun]) -> Section | None:
    """Return a table for each run that tested models; None where none did."""
    bodies = [
        (label, _body(run))
        for run, label in zip(runs, run_labels(runs), strict=True)
        if run.about.get("kind") == "rerun_tests"
    ]
    if not bodies:
        return None
    is_alone = len(runs) == 1
    shown = (body if is_alone else f"<h3>{text(label)}</h3>{body}" for label, body in bodies)
    return Section("Tested models", "".join(shown), texts=["model"])


def _body(run: ReportedRun) -> str:
    tested = [one for line in run.read_lines("metrics.jsonl") if (one := _read(line))]
    if not tested:
        return '<div class="panel"><p>No model was tested yet.</p></div>'
    left_out = len(tested) - _MOST_MODELS
    more = f"<p>{left_out:,} further models are in metrics.jsonl.</p>" if left_out > 0 else ""
    return (
        f'<div class="panel"><p>{_introduction(run)}</p>{_table(tested[:_MOST_MODELS])}{more}</div>'
    )


def _read(line: Mapping[str, object]) -> _Tested | None:
    """Return the test in a line of the log; None where it has none."""
    said = mapping(line.get("text")).get("model")
    numbers = {name: one for name, value in line.items() if (one := number(value)) is not None}
    figures = {name: one for name, one in numbers.items() if name.startswith(_TEST)}
    counters = {name: one for name in _COUNTERS if (one := numbers.get(name))}
    return _Tested(said, counters, figures) if isinstance(said, str) and figures else None


def _introduction(run: ReportedRun) -> str:
    config = mapping(run.about.get("config"))
    episodes = number(config.get("episodes"))
    many = "as many episodes as its own test has" if not episodes else f"{episodes:,.0f} episodes"
    which = ", others than those of its own test" if config.get("other_episodes") is True else ""
    earlier = text(config.get("run", "an earlier run"))
    return (
        f"What <code>{earlier}</code> has kept, each tested in {many}{which}."
        " Bold is the best of a column; further figures are in the curves."
    )


def _table(tested: Sequence[_Tested]) -> str:
    counter = next((name for name in _COUNTERS if any(name in one.counters for one in tested)), "")
    names = _columns(tested)
    titles = ["model", *([AXIS_NAMES.get(counter, counter)] if counter else [])]
    titles += [name.removeprefix(_TEST) for name in names]
    bests = {name: _best(tested, name) for name in names}
    rows = []
    for one in tested:
        cells = [short_number(one.counters.get(counter, 0))] if counter else []
        cells += [_cell(one.figures.get(name), bests[name]) for name in names]
        shown = "".join(f"<td>{cell}</td>" for cell in cells)
        rows.append(f"<tr><th>{text(one.name)}</th>{shown}</tr>")
    # A zero-width space lets a long name break between its words.
    broken = [title.replace("/", "/\u200b") for title in titles]
    head = "".join(f"<th>{text(title)}</th>" for title in broken)
    body = f"<thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody>"
    return f'<table class="numbers shares">{body}</table>'


def _columns(tested: Sequence[_Tested]) -> list[str]:
    """Return the main metrics; an agent's metric that equals the overall one is not repeated."""
    names = by_information(dict.fromkeys(name for one in tested for name in one.figures))
    wholes = {name: _TEST + name.rpartition("/")[2] for name in names}
    shown = [
        name
        for name in names
        if name == wholes[name]
        or any(one.figures.get(name) != one.figures.get(wholes[name]) for one in tested)
    ]
    return shown[:_MOST_FIGURES]


def _best(tested: Sequence[_Tested], name: str) -> float | None:
    """Return the best value of a metric, None where none is better than all the others."""
    values = {one.figures[name] for one in tested if name in one.figures}
    direction = known_direction(name)
    if direction is None or len(values) < 2 or any(value != value for value in values):
        return None
    return max(values) if direction == "max" else min(values)


def _cell(value: float | None, best: float | None) -> str:
    cell = "-" if value is None else short_number(value)
    return f"<b>{cell}</b>" if value is not None and value == best else cell
