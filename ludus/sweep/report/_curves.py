"""The compared metric along the runs: the mean over the seeds of each trial, with the band between them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence

from ludus.show.report.charts import NUM_COLOURS, NUM_DASHES, Line, line_chart
from ludus.show.report.curves import AXIS_NAMES
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
    """Return the mean of the curves at the steps that all have come to, with their band."""
    if not curves:
        return None
    steps = [[point.step(counter) for point in curve.points] for curve in curves]
    last = min(some[-1] for some in steps)
    first = max(some[0] for some in steps)
    grid = sorted({step for some in steps for step in some if first <= step <= last})
    if len(grid) > _MOST_POINTS:
        grid = [grid[round(i * (len(grid) - 1) / (_MOST_POINTS - 1))] for i in range(_MOST_POINTS)]
    columns = [
        [
            curve.points[bisect_right(some, x) - 1].value
            for curve, some in zip(curves, steps, strict=True)
        ]
        for x in grid
    ]
    is_band = len(curves) > 1
    return Line(
        f"trial {trial.number}",
        [float(x) for x in grid],
        [math.fsum(column) / len(column) if _finite(column) else math.nan for column in columns],
        colour=place % NUM_COLOURS,
        dash=place // NUM_COLOURS % NUM_DASHES,
        lows=[min(c) if _finite(c) else math.nan for c in columns] if is_band else (),
        highs=[max(c) if _finite(c) else math.nan for c in columns] if is_band else (),
    )


def _finite(values: Sequence[float]) -> bool:
    return all(math.isfinite(value) for value in values)


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
