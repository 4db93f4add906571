"""The trials by their values: a chart for each key, and all keys side by side."""

from __future__ import annotations

from ludus.show.report.charts import NARROW, Line, drawing, line_chart, text
from ludus.show.report.scales import Scale, is_drawn, short_number, value_scale
from ludus.sweep.report._read import Axis, ReportedSweep, axis_of, shown, wide
from ludus.sweep.trials import SweepTrial

_MOST_SLICES, _MOST_PATHS = 24, 400
_TOP, _BOTTOM, _SIDE = 46.0, 26.0, 62.0


def _scored(sweep: ReportedSweep) -> list[tuple[SweepTrial, float]]:
    return [
        (trial, trial.score.mean)
        for trial in sweep.trials
        if trial.state == "complete" and trial.score is not None and is_drawn(trial.score.mean)
    ]


def slices(sweep: ReportedSweep) -> str:
    """Return a chart of scores against values for each key."""
    scored = _scored(sweep)
    if len(scored) < 2:
        return ""
    y, best = value_scale([value for _, value in scored]), sweep.best
    charts = []
    for path, varied in list(sweep.space.items())[:_MOST_SLICES]:
        axis = axis_of(path, varied)
        found = [
            (place, value, trial is best)
            for trial, value in scored
            if path in trial.point and (place := axis.place(trial.point[path])) is not None
        ]
        lines = [
            Line(label, [p for p, _, _ in some], [v for _, v, _ in some], is_points=True, value_text="",
                 colour=colour, dash=2 * colour)
            for label, colour, some in (
                ("trials", 0, sorted(one for one in found if not one[2])),
                ("the best", 1, [one for one in found if one[2]]),
            )
            if some
        ]  # fmt: skip
        if lines:
            charts.append(
                line_chart(path, lines, x_label=path, size=NARROW, scales=(axis.scale, y))
            )
    return f'<div class="charts small">{"".join(charts)}</div>'


def parallel(sweep: ReportedSweep) -> str:
    """Return a picture with an axis for each key, and a line through them for each trial."""
    scored = _scored(sweep)
    if len(scored) < 2 or not sweep.space:
        return ""
    sign = 1 if sweep.mode == "max" else -1
    # The best are drawn last, above the others.
    scored = sorted(scored, key=lambda one: sign * one[1])[-_MOST_PATHS:]
    axes = [axis_of(path, varied) for path, varied in sweep.space.items()]
    scores = value_scale([value for _, value in scored])
    width = max(560.0, 2 * _SIDE + 130.0 * len(axes))
    height = 320.0
    xs = [_SIDE + place * (width - 2 * _SIDE) / len(axes) for place in range(len(axes) + 1)]
    body = []
    for rank, (trial, value) in enumerate(scored):
        body.append(_path(trial, value, axes, scores, xs, height, rank / max(1, len(scored) - 1)))
    for x, axis in zip(xs, axes, strict=False):
        body += _axis(x, axis.path, axis.scale, height)
    body += _axis(xs[-1], sweep.config.metric.name, scores, height)
    title = "Each line is a trial; the better, the stronger"
    chart = drawing(title, body, (width, height))
    return wide(chart, at_least=90 * len(xs), at_most=width)


def _down(scale: Scale, value: float, height: float) -> float:
    return height - _BOTTOM - scale.place(value) * (height - _BOTTOM - _TOP)


def _path(
    trial: SweepTrial, value: float, axes: list[Axis], scores: Scale, xs: list[float],
    height: float, share: float,
) -> str:  # fmt: skip
    """Return the line of a trial; it is broken at a key that does not vary in it."""
    points, pen = "", "M"
    for x, axis in zip(xs, axes, strict=False):
        place = axis.place(trial.point[axis.path]) if axis.path in trial.point else None
        if place is None:
            pen = "M"
            continue
        points += f"{pen}{x:.1f} {_down(axis.scale, place, height):.1f}"
        pen = "L"
    points += f"{pen}{xs[-1]:.1f} {_down(scores, value, height):.1f}"
    words = "\n".join(f"{path}: {shown(one)}" for path, one in trial.point.items())
    title = text(f"trial {trial.number}: {short_number(value)}\n{words}")
    is_best = share == 1
    strength = f"stroke-opacity:{0.1 + 0.75 * share**3:.2f};stroke-width:{2.6 if is_best else 1.3}"
    colour = "c1" if is_best else "c0"
    return (
        f'<path class="line {colour}" style="{strength}" d="{points}"><title>{title}</title></path>'
    )


def _axis(x: float, name: str, scale: Scale, height: float) -> list[str]:
    label = name.split(".")[-1].split("/")[-1]
    label = label if len(label) <= 18 else f"{label[:17]}…"
    parts = [
        f'<path class="axis" d="M{x:.1f} {_TOP:.1f}V{height - _BOTTOM:.1f}"/>',
        f'<text class="mid marked" x="{x:.1f}" y="{_TOP - 20:.1f}">{text(label)}'
        f"<title>{text(name)}</title></text>",
    ]
    for tick, word in zip(scale.ticks, scale.labels, strict=True):
        y = _down(scale, tick, height)
        parts.append(f'<path class="axis" d="M{x - 3:.1f} {y:.1f}h6"/>')
        parts.append(f'<text class="end" x="{x - 7:.1f}" y="{y + 4:.1f}">{word}</text>')
    return parts
