"""One member of a population as the search sees it: its run directory, and how it ended a generation."""

from __future__ import annotations

import math

from ludus.judge.directions import Direction
from ludus.store.checkpoint_files import peek
from ludus.store.local import LocalStorage
from ludus.sweep.curve import MetricCurve, has_reached, read_curve
from ludus.sweep.engine import RunEnd
from ludus.sweep.population.record import EndStatus, GenerationEnd
from ludus.sweep.swept_run import SweptRun

_MOST_POINTS = 100
"""So many values of a generation are recorded at most."""


class MemberRun(SweptRun):
    """The run of a member, which pauses at the end of each generation."""

    def __init__(self, sweep: LocalStorage, member: int, seed: int, metric: str) -> None:
        super().__init__(sweep, member, seed, metric, name=f"{member:04d}")

    def recorded_generation_end(self, start: int, until: tuple[str, int] | None) -> RunEnd | None:
        """Return how an earlier process ended it in this generation; None if it is to go on.

        `start` is how often it had logged the metric when the generation began.
        """
        end = self.recorded_end()
        if end is not None or until is None or not self.storage.exists("run.json"):
            return end
        saved = peek(self.storage)
        new = self.curve.points[start:]
        if saved.get("stop_reason") is None and any(has_reached(point, until) for point in new):
            return RunEnd("paused", None, saved.get("counters", {}))
        return None

    def generation_end(
        self, end: RunEnd, start: int, counter: str, *, take: str, mode: Direction
    ) -> GenerationEnd:
        """Return how it ended this generation, with the value that its directory holds."""
        curve = read_curve(self.storage, self._metric)
        is_over = end.status != "paused"
        # At the end it counts what the whole run is worth; before, what this generation was.
        whole = curve if is_over else MetricCurve(curve.points[start:])
        status: EndStatus = end.status  # type: ignore[assignment]
        points = [
            [float(one.step(counter)), one.value]
            for one in curve.points[start:]
            if math.isfinite(one.value)
        ]
        return GenerationEnd(
            status,
            end.reason,
            whole.value_of(take, mode),
            dict(end.counters) or peek(self.storage).get("counters", {}),
            len(curve.points),
            thinned(points),
        )


def thinned(points: list[list[float]]) -> list[list[float]]:
    """Return at most so many points as are recorded, evenly spaced, the first and the last among them."""
    if len(points) <= _MOST_POINTS:
        return points
    last = _MOST_POINTS - 1
    return [points[round(index * (len(points) - 1) / last)] for index in range(_MOST_POINTS)]
