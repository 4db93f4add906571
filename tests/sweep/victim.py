"""A sweep, or a group of runs, in a process that kills itself at the nth time that it comes to a place."""

from __future__ import annotations

import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ludus.config import registry
from ludus.store import forks
from ludus.store.journal import Journal
from ludus.sweep import MetricCurve, Sweeper, run, study, swept_run
from ludus.sweep.population import member, selection
from ludus.sweep.seed_group import train_seeds
from tests.sweep.hill import HillTrainer
from tests.sweep.judged import JUDGED
from tests.sweep.judged_hill import JudgedTrainer
from tests.sweep.small import HILL

PLACES: dict[str, tuple[Any, str]] = {
    "asked": (study.Study, "ask"),  # chosen, and not yet recorded
    "record": (Journal, "put"),
    "boundary": (run.SweptSession, "_look"),
    "saved": (run.SweptSession, "close"),  # a run has ended, and its directory does not say so yet
    "pruned": (run.SweptSession, "close"),  # the same of a run that was ended early
    "copy": (forks, "_copy"),  # a file or folder of a checkpoint that another run takes over
    "taken over": (forks, "_tell"),  # all is copied, and the run does not say so yet
}


def live(folder: str, data: dict[str, Any], at: str | None, count: int, wrong: str) -> None:
    """Go on with a sweep until the nth visit of a place, or to its end."""
    registry.load_plugin(HILL)
    registry._REGISTERED["trainer"]["hill"] = HillTrainer
    if at is not None:
        owner, name = PLACES[at]
        setattr(owner, name, _dying(getattr(owner, name), count, place=at))
    _BREAKS[wrong]()
    Sweeper(data).sweep(root=Path(folder) / "sweeps", show_on="none")


def live_with_seeds(root: str, data: dict[str, Any], at: str | None, count: int, jobs: int) -> None:
    """Train a group of runs until the nth visit of a place, or to its end."""
    registry.load_plugin(JUDGED)
    registry._REGISTERED["trainer"]["judged-hill"] = JudgedTrainer
    if at is not None:
        owner, name = PLACES[at]
        setattr(owner, name, _dying(getattr(owner, name), count, place=at))
    train_seeds(data, "0-2", root=root, jobs=jobs, show_on="none")


def _dying(method: Callable[..., Any], count: int, *, place: str) -> Callable[..., Any]:
    seen = 0

    @functools.wraps(method)
    def visited(*given: Any, **more: Any) -> Any:
        nonlocal seen
        seen += place != "pruned" or given[0].pruned_because is not None
        if seen == count and place != "asked":
            os.kill(os.getpid(), signal.SIGKILL)
        found = method(*given, **more)
        if seen == count:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    return visited


def _keep_a_sampler() -> None:
    """One sampler for all points, with a generator that nothing saves."""
    kept: list[Any] = []

    def seeded(self: study.Study, number: int) -> Any:
        if not kept:
            kept.append(self._sampler.make(self._seed, 0))
        return kept[0]

    study.Study._seeded = seeded  # type: ignore[method-assign]


def _forget_decisions() -> None:
    """A run that was to end at its last checkpoint goes on."""
    swept_run.saved_curve = lambda storage, metric: MetricCurve()  # type: ignore[attr-defined]


def _keep_a_generator() -> None:
    """One generator for all copies, which begins again after a kill."""
    kept = np.random.Generator(np.random.PCG64(0))
    selection._generator = lambda *of: kept  # type: ignore[attr-defined]


def _forget_pauses() -> None:
    """A member that waits at the end of a generation goes on."""
    member.has_reached = lambda point, until: False  # type: ignore[attr-defined]


_BREAKS: dict[str, Callable[[], None]] = {
    "nothing": lambda: None,
    "one sampler": _keep_a_sampler,
    "decisions": _forget_decisions,
    "one generator": _keep_a_generator,
    "pauses": _forget_pauses,
}
