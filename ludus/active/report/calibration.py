"""Calibration: reliability curves before and after temperature scaling."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.active.records import Bin, Curve
from ludus.active.report._kept import by_run, numbered, panel, records, some
from ludus.show.report.charts import NARROW, Line, line_chart
from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun
from ludus.show.report.scales import linear_scale, short_number

_MOST_ROUNDS = 3
_NOTE = (
    "<p>On the diagonal, predictions are right as often as the model is sure. ECE is the mean distance from"
    " it, each bin weighted by its examples.</p>"
)


def calibration(runs: Sequence[ReportedRun]) -> Section | None:
    """Return reliability curves of some rounds of each run; None if no run has measured them."""
    bodies = [_of_run(run) for run in runs]
    if not any(bodies):
        return None
    return Section("Calibration on the test data", panel(_NOTE) + by_run(runs, bodies))


def _of_run(run: ReportedRun) -> str:
    names = some(numbered(run, "", r"calibration_(\d+)\.json"), _MOST_ROUNDS)
    found, wrong = records(run, Curve, names)
    charts = "".join(_chart(curve) for curve in found)
    return (f'<div class="charts small">{charts}</div>' if charts else "") + panel(wrong)


def _chart(curve: Curve) -> str:
    scale = linear_scale(0.0, 1.0, num_ticks=5)
    lines = [Line("perfect", [0.0, 1.0], [0.0, 1.0], colour=7, dash=1, told="")]
    lines += _line("as predicted", curve.bins, 0)
    if curve.scaled_bins is not None:
        temperature = curve.temperature
        told = "" if temperature is None else f" {short_number(round(temperature, 3))}"
        lines += _line(f"with temperature{told}", curve.scaled_bins, 1)
    return line_chart(
        f"Round {curve.round}", lines, x_label="confidence", size=NARROW, scales=(scale, scale)
    )


def _line(label: str, bins: Sequence[Bin], colour: int) -> list[Line]:
    """Return the curve through the bins that hold examples, with its expected calibration error."""
    held = sorted(
        (one.confidence, one.accuracy, one.examples)
        for one in bins
        if one.examples and one.confidence is not None and one.accuracy is not None
    )
    if not held:
        return []
    total = sum(examples for _, _, examples in held)
    error = sum(abs(sure - right) * examples for sure, right, examples in held) / total
    xs, ys, _ = zip(*held, strict=True)
    return [Line(label, xs, ys, colour, told=f"ECE {error:.3f}")]
