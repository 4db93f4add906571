"""One run of a sweep, in the process that executes it: an ordinary run, which also tells what it logs."""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from ludus.config.base import TrainerConfig, from_data
from ludus.core.errors import (
    CheckpointError,
    RunError,
    StorageError,
    is_out_of_memory,
)
from ludus.core.run import Observer, Run
from ludus.core.runtime import Request
from ludus.core.trainer import Trainer
from ludus.judge.judge import Judge
from ludus.session.build import build_trainer
from ludus.session.record import Record
from ludus.session.repository import git_state
from ludus.session.session import Session
from ludus.store.groups import GROUP, SWEEP
from ludus.sweep.curve import Point, has_reached
from ludus.sweep.engine import MakeTrainer, RunEnd, Task

FATAL = (RunError, StorageError, CheckpointError)
"""Errors that are of the sweep, not of the point that was tried."""
_SECONDS_BETWEEN_SIGNS = 0.5
MAX_REASON = 400
"""Longest reason that is kept of why a run ended."""


class RunChannel(Protocol):
    """Channel between a run and its search: logged values one way, decisions the other."""

    def logged(self, point: Point) -> str | None:
        """Tell a value; return why the run is to end, or None."""

    def sign(self, counters: Mapping[str, int]) -> None:
        """Tell that the run makes progress."""

    def is_pausing(self) -> bool:
        """Return whether the run is to save and end."""


class SweptSession(Session):
    """The runtime of a run that tells what it logs, and may be pruned.

    A pruned run is paused, not stopped: it ends at once with a checkpoint, and `ludus resume` goes on with it
    as if it had never been pruned.
    """

    shows = False

    def __init__(self, trainer: Trainer, request: Request, *, task: Task, talk: RunChannel) -> None:
        names = {GROUP: task.group, SWEEP: task.sweep}
        belongs_to = {key: name for key, name in names.items() if name is not None}
        super().__init__(trainer, request, belongs_to=belongs_to)
        self._metric, self._talk, self._until = task.metric, talk, task.until
        self._news: list[Point] = []
        self._signed = time.monotonic()
        self.pruned_because: str | None = None
        self.is_paused = False
        """Whether it has come to `until`."""

    def git(self) -> dict[str, Any] | None:
        return _git_at_first()

    def ready(self, run: Run) -> None:
        super().ready(run)
        metric = self._metric or _first_metric(self._parts.values())
        if metric is not None:
            self._logger.attach(MetricTap(metric, self._news))

    def observers(self) -> Sequence[Observer]:
        return [*super().observers(), self._look]

    def _look(self, run: Run) -> None:
        """Tell what was logged since the last boundary, and end the run here if it is to end."""
        news, self._news[:] = list(self._news), []
        for point in news:
            reason = self._talk.logged(point)
            if reason is not None and not (run.is_finished or run.is_ending):
                self.pruned_because = self.pruned_because or reason
            if self._until is not None and has_reached(point, self._until):
                self.is_paused = not (run.is_finished or run.is_ending)
        if self.pruned_because is not None or self.is_paused:
            run.interrupted = True
        now = time.monotonic()
        if now - self._signed >= _SECONDS_BETWEEN_SIGNS:
            self._signed = now
            self._talk.sign(run.counters)
        if self._talk.is_pausing():
            run.interrupted = True

    def outcome(self, run: Run) -> tuple[str, str | None]:
        if self.pruned_because is not None and not run.is_finished:
            return "pruned", self.pruned_because
        if self.is_paused:
            counter, step = self._until or ("", 0)
            return "interrupted", f"paused at {counter} {step}, as planned"
        return super().outcome(run)


@functools.cache
def _git_at_first() -> dict[str, Any] | None:
    """Return the state of the repository when this process began its first run, with the code that it has."""
    return git_state()


def _first_metric(parts: Iterable[object]) -> str | None:
    """Return the metric by which a run judges its models first; None if it judges none."""
    judges = (part for part in parts if isinstance(part, Judge))
    return next((judge.scores[0].metric for judge in judges if judge.scores), None)


class MetricTap:
    """A back end of the log that keeps the values of one metric until the next boundary."""

    def __init__(self, metric: str, news: list[Point]) -> None:
        self._metric, self._news = metric, news

    def write(self, record: Record) -> None:
        if self._metric in record.scalars:
            point = Point(dict(record.counters), float(record.scalars[self._metric]))
            self._news.append(point)

    def close(self) -> None: ...


def execute(task: Task, talk: RunChannel, *, make_trainer: MakeTrainer | None = None) -> RunEnd:
    """Begin the run of a task, or go on with it, and return how it ended; no error leaves this function."""
    sessions: list[SweptSession] = []

    def runtime(trainer: Trainer, request: Request) -> SweptSession:
        sessions.append(SweptSession(trainer, request, task=task, talk=talk))
        return sessions[0]

    try:
        trainer = _trainer_of(task, make_trainer)
        result = trainer.fit(
            root=task.root, name=task.name, resume=True, show_on="stderr", runtime=runtime
        )
    except Exception as error:
        return failure(error)
    pruned = sessions[0].pruned_because
    counters = {name: value for name, value in result.counters.items() if value}
    if pruned is not None and result.status == "interrupted":
        return RunEnd("pruned", pruned, counters)
    if result.status == "interrupted" and sessions[0].is_paused:
        return RunEnd("paused", None, counters)
    if result.status == "interrupted" and result.reason and not trainer.run.interrupted:
        return RunEnd("failed", f"it waits: {result.reason}", counters)
    return RunEnd(result.status, result.reason, counters)


def _trainer_of(task: Task, make_trainer: MakeTrainer | None) -> Trainer:
    config: TrainerConfig = from_data(dict(task.config), source=f"the config of {task.name}")
    return build_trainer(config) if make_trainer is None else make_trainer(config)


def failure(error: BaseException) -> RunEnd:
    """Return how a run ended that raised an error."""
    # The words of the event in its directory, which may be all that a killed sweep finds of it.
    first = str(error).partition("\n")[0]
    reason = f"{type(error).__name__}: {first}"[:MAX_REASON]
    if is_out_of_memory(error):
        return RunEnd("failed", f"out of memory: {reason}"[:MAX_REASON], {}, is_spent=True)
    return RunEnd("failed", reason, {}, is_fatal=isinstance(error, FATAL))
