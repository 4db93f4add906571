"""Compare two runs, or two groups of runs: configs, versions and scores."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import numpy as np

from ludus.core.errors import RunError, nearest
from ludus.judge.confidence import (
    bootstrap_interval,
    mean_of,
    probability_of_improvement,
)
from ludus.judge.directions import Direction, known_direction
from ludus.show.compared import CONFIDENCE, Comparison, Difference, Estimate, Side, Take
from ludus.show.report.files import ReportedRun, number, read_run, read_summary
from ludus.show.report.groups import (
    differing_keys,
    flat_config,
    grouped,
    merged_config,
    repeat_notes,
    repeated,
    shown_value,
)
from ludus.show.report.scales import is_drawn
from ludus.store.places import is_url

_FEW = 5
_FACTS = ("host", "versions", "machine", "git")


def compare(
    ours: Sequence[str | Path],
    theirs: Sequence[str | Path],
    *,
    names: tuple[str, str] = ("A", "B"),
    metric: str | None = None,
    take: Take = "best",
    mode: Direction | None = None,
) -> Comparison:
    """Compare two sides, each the locations of one or several runs.

    Without `metric` the score is the best that each run recorded, by the first metric common to all of them.
    `names` are those of sides whose runs are not one group. Raises RunError if they cannot be compared.
    """
    places = [list(map(str, side)) for side in (ours, theirs)]
    if not all(places):
        raise RunError("a side of the comparison has no run; give at least one for each")
    _check_different(places)
    sides = [
        _side(name, [_read(place, metric) for place in some])
        for name, some in zip(names, places, strict=True)
    ]
    for side in sides:
        _check_kind(side)
    found = [repeated(side.runs, range(len(side.runs))) for side in sides]
    repeats = [
        note
        for side, some in zip(sides, found, strict=True)
        for note in repeat_notes(side.runs, some)
    ]
    sides = [_without(side, some) for side, some in zip(sides, found, strict=True)]
    metric = metric or _common_metric(sides)
    for run in (run for side in sides for run in side.runs):
        if run.metrics and metric not in run.metrics:
            raise RunError(f"{run.place} logs no '{metric}'.{nearest(metric, run.metrics)}")
    mode = mode or _direction(metric, sides)
    one, two = (
        Side(side.name, side.runs, [_score(run, metric, take, mode) for run in side.runs])
        for side in sides
    )
    configs = [merged_config([flat_config(run) for run in side.runs]) for side in (one, two)]
    environments = [merged_config([_facts(run) for run in side.runs]) for side in (one, two)]
    pairs = _pairs(one, two)
    gains = [ours - theirs for _, ours, theirs in pairs]
    return Comparison(
        one,
        two,
        metric,
        mode,
        take,
        _differences(configs),
        _differences(environments),
        _difference(one.scores, two.scores),
        _probability(one.scores, two.scores, mode),
        pairs,
        _estimate(gains) if pairs else None,
        [*repeats, *_notes(one, two, configs)],
    )


def _check_different(sides: Sequence[Sequence[str]]) -> None:
    """Raise RunError if a run is given twice, however its location is written."""
    given: dict[str, int] = {}
    for index, side in enumerate(sides):
        for place in side:
            resolved = place if is_url(place) else os.path.realpath(place)
            before = given.setdefault(resolved, index)
            if before != index:
                raise RunError(f"{place} is on both sides; compare different runs")
        if len({*map(os.path.realpath, side)}) < len(side):
            raise RunError(f"a run is given twice among {', '.join(side)}; a run counts once")


def _read(place: str, metric: str | None) -> ReportedRun:
    """Return what is known of a run; its log is read only if another metric than its scores is asked for."""
    run = read_summary(place)
    if metric is None or any(best.get("metric") == metric for best in run.all_bests):
        return run
    return read_run(place)


def _side(given: str, runs: Sequence[ReportedRun]) -> Side:
    """Return a side by the name of its group if its runs are one, else by what the user called it."""
    groups = grouped(runs)
    return Side(groups[0].name if len(groups) == 1 else given, runs)


def _without(side: Side, repeats: Collection[int]) -> Side:
    """Return a side without the runs that repeat another of it: they tell nothing of other seeds."""
    return Side(side.name, [run for at, run in enumerate(side.runs) if at not in repeats])


def _check_kind(side: Side) -> None:
    kinds = dict.fromkeys(str(run.about.get("kind")) for run in side.runs)
    if len(kinds) > 1:
        raise RunError(
            f"the runs of {side.name} are of different kinds ({', '.join(kinds)}), so they have no common"
            " mean; compare runs of one kind on each side"
        )


def _common_metric(sides: Sequence[Side]) -> str:
    """Return the first metric by which every run has a best score."""
    found: list[list[str]] = []
    for side in sides:
        for run in side.runs:
            metrics = [str(best.get("metric")) for best in run.all_bests]
            if not metrics:
                raise RunError(
                    f"{run.place} has no score: it has recorded no best model yet; name a metric that it logs"
                    " with --metric"
                )
            found.append(metrics)
    common = [name for name in found[0] if all(name in metrics for metrics in found)]
    if not common:
        metrics_text = " and ".join(
            f"{side.name} ({side.kind}) is scored by "
            + ", ".join(dict.fromkeys(str(best["metric"]) for run in side.runs for best in run.all_bests))
            for side in sides
        )  # fmt: skip
        raise RunError(
            f"no score is common: {metrics_text}; name a metric that all log with --metric"
        )
    return common[0]


def _direction(metric: str, sides: Sequence[Side]) -> Direction:
    """Return the direction that the runs recorded with this score, or else the declared one."""
    for run in (run for side in sides for run in side.runs):
        for best in run.all_bests:
            if best.get("metric") == metric and best.get("mode") in ("min", "max"):
                return "min" if best["mode"] == "min" else "max"
    found = known_direction(metric)
    if found is None:
        raise RunError(
            f"cannot tell whether '{metric}' should go up or down; say --mode max or min"
        )
    return found


def _score(run: ReportedRun, metric: str, take: Take, mode: Direction) -> float:
    """Return the score of a run: the best it recorded, or the best or last value in its log."""
    for best in run.all_bests if take == "best" else ():
        score = number(best.get("score"))
        is_meant = best.get("metric") == metric and best.get("mode", mode) == mode
        if is_meant and score is not None and is_drawn(score):
            return score
    if not run.metrics:
        run = read_run(run.place)
    if metric not in run.metrics:
        raise RunError(f"{run.place} logs no '{metric}'.{nearest(metric, run.metrics)}")
    values = run.metrics[metric].values
    if take == "last":
        if not is_drawn(values[-1]):
            raise RunError(f"the last '{metric}' of {run.place} is {values[-1]}; try --take best")
        return values[-1]
    finite = [value for value in values if is_drawn(value)]
    if not finite:
        raise RunError(f"no '{metric}' of {run.place} is finite, so it has no score")
    return max(finite) if mode == "max" else min(finite)


def _facts(run: ReportedRun) -> dict[str, object]:
    """Return what run.json says of versions and machine, by dotted keys."""
    found: dict[str, object] = {}
    for name in _FACTS:
        value = run.about.get(name)
        if isinstance(value, Mapping):
            found |= {f"{name}.{key}": inner for key, inner in value.items()}
        elif value is not None:
            found[name] = value
    return found


def _differences(sides: Sequence[Mapping[str, object]]) -> list[Difference]:
    return [
        (key, shown_value(sides[0], key), shown_value(sides[1], key))
        for key in differing_keys(sides)
    ]


def _difference(ours: Sequence[float], theirs: Sequence[float]) -> Estimate:
    value = float(np.mean(ours) - np.mean(theirs))
    if min(len(ours), len(theirs)) < 2:
        return Estimate(value)
    low, high = bootstrap_interval(
        ours,
        theirs,
        statistic=lambda x, y: mean_of(x) - mean_of(y),
        confidence=CONFIDENCE,
    )
    return Estimate(value, low, high)


def _probability(
    ours: Sequence[float], theirs: Sequence[float], mode: Direction
) -> Estimate | None:
    if max(len(ours), len(theirs)) < 2:
        return None
    sign = 1.0 if mode == "max" else -1.0
    x, y = sign * np.asarray(ours, float), sign * np.asarray(theirs, float)
    value = float(probability_of_improvement(x[None], y[None])[0])
    if min(len(x), len(y)) < 2:
        return Estimate(value)
    low, high = bootstrap_interval(
        x, y, statistic=probability_of_improvement, confidence=CONFIDENCE
    )
    return Estimate(value, low, high)


def _estimate(values: Sequence[float]) -> Estimate:
    mean = float(np.mean(values))
    if len(values) < 2:
        return Estimate(mean)
    return Estimate(mean, *bootstrap_interval(values, statistic=mean_of, confidence=CONFIDENCE))


def _pairs(one: Side, two: Side) -> list[tuple[object, float, float]]:
    """Return the scores of the seeds that both sides have; none if a side has a seed twice."""
    sides = [dict(zip(map(str, side.seeds), side.scores, strict=True)) for side in (one, two)]
    if any(len(found) < len(side.runs) for found, side in zip(sides, (one, two), strict=True)):
        return []
    ours, theirs = sides
    return [
        (seed, ours[str(seed)], theirs[str(seed)])
        for seed in one.seeds
        if seed is not None and str(seed) in theirs
    ]


def _notes(one: Side, two: Side, configs: Sequence[Mapping[str, object]]) -> list[str]:
    """Return sentences on what limits the comparison."""
    notes = []
    if one.kind != two.kind:
        notes.append(f"The sides are of different kinds: {one.kind} and {two.kind}.")
    for side, config in zip((one, two), configs, strict=True):
        flat = [flat_config(run) for run in side.runs]
        if mixed := differing_keys(flat):
            keys = ", ".join(mixed[:5]) + (" and more" if len(mixed) > 5 else "")
            notes.append(f"The runs of {side.name} differ in {keys}: their mean mixes configs.")
        if not config:
            notes.append(f"run.json of {side.name} has no config, so keys are not compared.")
        notes += [
            f"{run.place} has not ended: its score may still change."
            for run in side.runs
            if run.ending is None
        ]
    counts = len(one.runs), len(two.runs)
    if max(counts) == 1:
        notes.append("Each side is a single seed: no interval is possible; train more seeds.")
    elif min(counts) == 1:
        alone = one if counts[0] == 1 else two
        notes.append(f"{alone.name} is a single seed: no interval of the difference is possible.")
    elif min(counts) < _FEW:
        notes.append(
            f"With fewer than {_FEW} runs on a side, bootstrap intervals are too narrow; train more seeds."
        )
    return notes
