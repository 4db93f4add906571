"""What prizes duels have given, in a report."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.show import Line, ReportedRun, Section, line_chart
from ludus.store import Journal, found_run


def prizes(runs: Sequence[ReportedRun]) -> Section | None:
    """Return the prizes of each run, bout by bout; None where no run gave one."""
    lines = []
    for place, run in enumerate(runs):
        given = Journal(found_run(run.place), "prizes")
        likes = [(int(bout), (given.get(bout) or {})["likes"]) for bout in given.keys()]  # noqa: SIM118
        if likes:
            bouts, prizes = zip(*sorted(likes), strict=True)
            lines.append(Line(run.name, bouts, prizes, colour=place))
    return Section("Prizes", line_chart("likes", lines, x_label="bout")) if lines else None
