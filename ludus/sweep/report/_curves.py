"""The compared metric along the runs: the mean over the seeds of each trial, with the band between them."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ludus.show.report.band import Band
from ludus.show.report.bands import RunCurve, group_curve
from ludus.show.report.charts import NUM_COLOURS, NUM_DASHES, Line, line_chart
from ludus.show.report.curves import AXIS_NAMES
from ludus.show.report.scales import is_drawn
from ludus.store.places import below, open_storage
from ludus.sweep.curve import MetricCurve, read_curve
from ludus.sweep.display import ranked
from ludus.sweep.population.config import PopulationConfig
from ludus.sweep.report._read import ReportedSweep
from ludus.sweep.trials import SweepTrial

_MOST_TRIALS, _MOST_POINTS = 8, 300
_COUNTERS = ("env_steps", "opt_steps", "epoch", "iteration", "examples", "tokens")


def trial_curves(sweep: ReportedSweep) -> str:
    """Return the chart of the best trials."""
    rows = [trial for trial in ranked(sweep.trials, sweep.mode) if trial.runs]
    curves = {trial.number: _curves_of(sweep, trial) for trial in rows[:_MOST_TRIALS]}
    points = [curve.points[-1] for some in curves.values() for curve in some]
    counter = next((c for c in _COUNTERS if any(p.step(c) for p in points)), None)
    if counter is None:
        return ""
    lines = []
    for place, trial in enumerate(rows[:_MOST_TRIALS]):
        line = _line(trial, curves[trial.number], counter, place)
        lines += [] if line is None else [line]
    if not lines:
        return ""
    best = f"the best {len(lines)} of {len(rows)}" if len(rows) > len(lines) else "all trials"
    title = f"{sweep.config.metric.name}: {best}"
    chart = line_chart(title, lines, x_label=AXIS_NAMES.get(counter, counter))
    note = "<p>The line is the mean over the seeds, the band reaches from the lowest to the highest.</p>"
    note = f'<div class="panel">{note}</div>' if any(line.lows for line in lines) else ""
    return f'<div class="one">{chart}</div>{note}'


def _curves_of(sweep: ReportedSweep, trial: SweepTrial) -> list[MetricCurve]:
    found = []
    for run in trial.runs.values():
        storage = open_storage(below(sweep.place, run.run))
        if storage.exists("metrics.jsonl"):
            # A run that has been resumed by hand since is shown as it was in the sweep.
            curve = read_curve(storage, sweep.config.metric.name).up_to(run.num_points)
            found += [curve] if curve.points else []
    return found


def _line(
    trial: SweepTrial, curves: Sequence[MetricCurve], counter: str, place: int
) -> Line | None:
    """Return the mean of the curves as far as all of them go, with their band."""
    if not curves:
        return None
    found = [_run_curve(curve, counter) for curve in curves]
    mean = group_curve(found, counter, Band.MINMAX, most=_MOST_POINTS)
    num_points = sum(len(curve.points) for curve in curves)
    return Line(
        f"trial {trial.number}",
        mean.xs.tolist(),
        mean.ys.tolist(),
        colour=place % NUM_COLOURS,
        dash=place // NUM_COLOURS % NUM_DASHES,
        lows=() if mean.lows is None else mean.lows.tolist(),
        highs=() if mean.highs is None else mean.highs.tolist(),
        value_text=None if len(mean.ys) else "no value",
        num_left_out=num_points - sum(len(one.ys) for one in found),
    )


def _run_curve(curve: MetricCurve, counter: str) -> RunCurve:
    points = [(point.step(counter), point.value) for point in curve.points if is_drawn(point.value)]
    points.sort(key=lambda point: point[0])
    xs, ys = np.array(points, dtype=np.float64).reshape(-1, 2).T
    return RunCurve({counter: xs}, ys, None, None)


def member_curves(sweep: ReportedSweep) -> str:
    """Return the chart of every member as it was in each generation, copies that were replaced included."""
    record, best = sweep.population, sweep.best
    assert record is not None
    assert isinstance(sweep.config, PopulationConfig)
    counter = sweep.config.population.counter
    ancestors = [] if best is None else record.ancestors(best.number)
    lines = []
    for member in record.members:
        xs: list[float] = []
        ys: list[float] = []
        num_breaks = 0
        for generation, ends in sorted(record.ends.items()):
            replaced = {move.member for move in record.moves.get(generation - 1, [])}
            if member in replaced and xs:
                xs, ys, num_breaks = [*xs, xs[-1]], [*ys, math.nan], num_breaks + 1
            points = ends[member].points if member in ends else []
            xs += [float(x) for x, _ in points]
            ys += [float(y) for _, y in points]
        if xs:
            colour, dash = member % NUM_COLOURS, member // NUM_COLOURS % NUM_DASHES
            # The breaks are no values that the run has logged, so the legend does not count them.
            lines.append(
                Line(f"member {member}", xs, ys, colour=colour, dash=dash, num_left_out=-num_breaks)
            )
    if not lines:
        return ""
    title = f"{sweep.config.metric.name}, broken where a member took over the checkpoint of another"
    chart = line_chart(title, lines, x_label=AXIS_NAMES.get(counter, counter))
    names = list(dict.fromkeys(ancestors))
    sentence = f"The weights of the best come from members {' → '.join(map(str, names))}."
    note = f'<div class="panel"><p>{sentence}</p></div>' if len(names) > 1 else ""
    return f'<div class="one">{chart}</div>{note}'
