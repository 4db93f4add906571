"""The lines of a page's charts: a curve for each group of runs, or for a run that is alone in its group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ludus.show.report.band import Band
from ludus.show.report.bands import GroupCurve, RunClocks, RunCurve, group_curve, run_curve
from ludus.show.report.files import ReportedRun, mapping, number
from ludus.show.report.groups import RunGroup, run_labels
from ludus.show.report.looks import Drawn, Looks
from ludus.show.report.scales import interval_text, is_drawn, short_number
from ludus.show.report.strokes import Line


@dataclass(frozen=True)
class ChartLine:
    """A line as it is drawn, and the runs behind it, for the script of the page."""

    line: Line
    series: Sequence[Drawn]
    best: Sequence[tuple[dict[str, int], float]] = ()
    """Counters and score of the best model, if this is the metric it was chosen by."""


class PageCurves:
    """Makes the lines of all charts of a page."""

    def __init__(
        self, runs: Sequence[ReportedRun], groups: Sequence[RunGroup], band: Band, most_points: int
    ) -> None:
        self.runs, self.groups, self.band = runs, groups, band
        self.most_points = most_points
        self.labels = run_labels(runs)
        self.group_of = {index: at for at, one in enumerate(groups) for index in one.runs}
        self.clocks = [RunClocks(run) for run in runs]
        self._curves: dict[tuple[int, str], RunCurve] = {}

    @property
    def is_compared(self) -> bool:
        """Whether there is more than one group."""
        return len(self.groups) > 1

    def curve_of(self, one: Drawn) -> RunCurve:
        """Return the curve of a series, of few points."""
        key = one.run, one.names[0]
        if key not in self._curves:
            made = run_curve(one.series, self.clocks[one.run], most=self.most_points)
            self._curves[key] = made
        return self._curves[key]

    def is_counted(self, one: Drawn) -> bool:
        """Return whether a series counts in the mean of its group: its run repeats no other."""
        return one.run not in self.groups[one.group].repeats

    def axis(self, group: Sequence[Drawn]) -> str:
        """Return the counter for the x axis: the first that every series of the chart moves."""
        for counter in dict.fromkeys(name for run in self.runs for name in run.counter_names):
            if all(any(at.get(counter) for at in one.series.counters) for one in group):
                return counter
        return "opt_steps"

    def lines(self, group: Sequence[Drawn], axis: str, looks: Looks) -> list[ChartLine]:
        """Return the lines of a chart against this counter, each with its look."""
        by_line: dict[tuple[object, ...], list[Drawn]] = {}
        for one in group:
            by_line.setdefault((one.group, *one.names, "", *one.same), []).append(one)
        are_many = len({one.names[0] for one in group}) > 1
        found = [self._line(ones, axis, are_many=are_many) for ones in by_line.values()]
        firsts = [ones[0] for ones in by_line.values()]
        chosen = looks.of_chart(firsts, [one.line.is_dots for one in found])
        return [
            replace(one, line=replace(one.line, colour=colour, dash=dash))
            for one, (colour, dash) in zip(found, chosen, strict=True)
        ]

    def _line(self, ones: Sequence[Drawn], axis: str, *, are_many: bool) -> ChartLine:
        group = self.groups[ones[0].group]
        label = _label(ones[0], is_compared=self.is_compared)
        if self.is_compared:
            label = f"{group.name} · {label}" if are_many else group.name
        if len(group.runs) == 1:
            return self._single(ones[0], axis, label)
        curves = [self.curve_of(one) for one in ones]
        counted = [self.curve_of(one) for one in ones if self.is_counted(one)]
        mean = group_curve(counted, axis, self.band, most=self.most_points)
        runs = [(one.xs[axis].tolist(), one.ys.tolist()) for one in curves if axis in one.xs]
        line = Line(
            f"{label} ({len(counted)} run{'s' * (len(counted) != 1)})",
            mean.xs.tolist(),
            mean.ys.tolist(),
            lows=() if mean.lows is None else mean.lows.tolist(),
            highs=() if mean.highs is None else mean.highs.tolist(),
            value_text=_last(mean, self.band),
            is_points=all(_are_tests_at_ends(self.runs[one.run], one, axis) for one in ones),
            num_left_out=sum(_num_gaps(one) for one in ones),
            runs=runs,
        )
        return ChartLine(line, ones)

    def _single(self, one: Drawn, axis: str, label: str) -> ChartLine:
        # A counter still at zero is omitted from the records.
        points = sorted(
            zip((at.get(axis, 0) for at in one.series.counters), one.series.values, strict=True),
            key=lambda point: point[0],
        )
        run = self.runs[one.run]
        line = Line(
            label,
            [float(x) for x, _ in points],
            [y for _, y in points],
            best=_best_point(run, one.names, axis),
            is_points=_are_tests_at_ends(run, one, axis),
            trend=sorted((float(at.get(axis, 0)), mean) for at, mean in one.series.means),
            num_left_out=sum(one.series.left_out),
        )
        return ChartLine(line, [one], _bests(run, one.names))


def _last(mean: GroupCurve, band: Band) -> str:
    """Return the last mean with its band."""
    if not len(mean.ys):
        return "no common stretch"
    last = short_number(float(mean.ys[-1]))
    if mean.lows is None or mean.highs is None:
        return last
    low, high = float(mean.lows[-1]), float(mean.highs[-1])
    if band is Band.STDERR:
        return f"{last} ± {short_number(float(f'{(high - low) / 2:.2g}'))}"
    return f"{last} ({interval_text(low, high)})"


def _num_gaps(one: Drawn) -> int:
    return sum(one.series.left_out) + sum(not is_drawn(value) for value in one.series.values)


def _label(one: Drawn, *, is_compared: bool) -> str:
    """Return the label of a series in its chart, whose title has the rest of its name."""
    split, owner = one.parts.split, one.parts.owner
    if is_compared and (owner or one.same):
        return split
    if owner or one.same:
        return ", ".join(f"{split}/{name}" if name else split for name in (owner, *one.same))
    before, _, last = one.names[0].rpartition("/")
    return last if last.isdigit() and before else before or one.names[0]


def _are_tests_at_ends(run: ReportedRun, one: Drawn, axis: str) -> bool:
    """Return whether these are final tests, repeated because the run was made longer."""
    ends = [mapping(end.get("counters")).get(axis, 0) for end in run.ends]
    places = [at.get(axis, 0) for at in one.series.counters]
    return one.parts.line == "test" and all(place in ends for place in places[:-1])


def _best_point(run: ReportedRun, metrics: Sequence[str], axis: str) -> tuple[float, float] | None:
    for counters, score in _bests(run, metrics):
        at = number(counters.get(axis, 0))
        if at is not None:
            return (at, score) if is_drawn(score) and 0 <= at < 1 << 63 else None
    return None


def _bests(run: ReportedRun, metrics: Sequence[str]) -> list[tuple[dict[str, int], float]]:
    """Return the counters and the score of each best model that was chosen by one of these metrics."""
    found = []
    for best in run.all_bests:
        counters, score = mapping(best.get("counters")), number(best.get("score"))
        if best.get("metric") in metrics and counters and score is not None:
            found.append((dict(counters), score))
    return found
