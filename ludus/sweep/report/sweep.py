"""The page of a sweep: best config, trials, importance and curves; of a population also the lineage."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.show.report.families import Section
from ludus.show.report.files import ReportedRun
from ludus.sweep.report._curves import member_curves, trial_curves
from ludus.sweep.report._importance import importance
from ludus.sweep.report._lineage import lineage, schedule
from ludus.sweep.report._points import parallel, slices
from ludus.sweep.report._read import MARK as MARK, ReportedSweep, read_sweep
from ludus.sweep.report._trials import best, history, trials


def sweep(runs: Sequence[ReportedRun]) -> list[Section]:
    """Return the sections of each sweep among these directories."""
    found = [one for run in runs if (one := read_sweep(run)) is not None]
    return [section for one in found for section in _sections(one, is_alone=len(found) == 1)]


def _sections(one: ReportedSweep, *, is_alone: bool) -> list[Section]:
    if one.population is None:
        bodies = {
            "Best config": best(one),
            "Trials": trials(one),
            "Scores": history(one),
            "Importance": importance(one),
            "Values and scores": slices(one),
            "Parallel coordinates": parallel(one),
            "Curves of the trials": trial_curves(one),
        }
    else:
        bodies = {
            "Best config": best(one),
            "Members": trials(one),
            "Lineage": lineage(one),
            "Schedule": schedule(one),
            "Curves of the members": member_curves(one),
        }
    prefix = "" if is_alone else f"{one.name}: "
    return [Section(f"{prefix}{title}", body) for title, body in bodies.items() if body]
