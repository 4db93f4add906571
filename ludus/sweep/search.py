"""The search of a sweep: asks for points, launches their runs, prunes, scores, and tells the sampler.

search until the budget is used up
  ask            one trial, where a worker is free; or, deterministic, a whole batch when none is open
  launch         the next seeds of the open trials, oldest first
  work           receive logged values and endings
  tell           the sampler, as trials end; or, deterministic, the whole batch in its order
"""

from __future__ import annotations

from typing import Protocol

from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.errors import ConfigError, LudusError, nearest
from ludus.judge.confidence import mean_interval
from ludus.store.local import LocalStorage
from ludus.sweep.base import Base
from ludus.sweep.budget import Budget
from ludus.sweep.config import SweepConfig
from ludus.sweep.curve import MetricCurve, Point, logged_names
from ludus.sweep.engine import RunEnd, SweepEngine, Task
from ludus.sweep.pruning import Pruning
from ludus.sweep.record import SweepRecord
from ludus.sweep.sampler import Sampler
from ludus.sweep.search_loop import SearchLoop, check_fatal
from ludus.sweep.study import Study
from ludus.sweep.swept_run import SweptRun
from ludus.sweep.trials import RUNS, WHOLE, RunOutcome, SweepTrial

_MAX_FAILED_STARTS = 3
"""After so many runs that failed before they began, a sweep is given up."""


class TrialWatcher(Protocol):
    """Sees what happens, to show it."""

    def began(self, trial: SweepTrial, seed: int) -> None: ...
    def logged(self, trial: SweepTrial, seed: int, point: Point) -> None: ...
    def ended(self, trial: SweepTrial, outcome: RunOutcome | None) -> None:
        """A run has ended, or without one, the whole trial."""


class Search(SearchLoop):
    """One process's part of a sweep; it takes up what earlier ones have recorded."""

    def __init__(
        self,
        config: SweepConfig,
        base: Base,
        storage: LocalStorage,
        record: SweepRecord,
        engine: SweepEngine,
        watcher: TrialWatcher,
    ) -> None:
        super().__init__(engine, storage.place)
        self._config, self._base, self._storage = config, base, storage
        self._record, self._watcher = record, watcher
        self._mode = config.metric.mode
        self.sampler = sampler_of(config, base)
        self.study = Study(self.sampler, seed=config.seed, mode=self._mode)
        self.trials = record.trials()
        try:
            self.study.rebuild(self.trials, record.order())
        except (KeyError, TypeError, ValueError) as error:
            raise record.damaged(error) from None
        self._pruning = Pruning(config, self.trials)
        self._running: dict[tuple[int, int], SweptRun] = {}
        self._budget = Budget(config, self.trials, seconds=record.seconds())
        for trial in self.trials.values():
            for outcome in trial.runs.values():
                self._pruning.note(trial, self._run_of(trial, outcome.seed), outcome)
            self._end_if_over(trial)

    def run(self) -> bool:
        """Search until the budget is used up; return false if it was asked to pause before."""
        if self._config.deterministic:
            self._tell_batch()
        try:
            return super().run()
        finally:
            if any(not trial.is_told for trial in self.trials.values()):
                self._record.ran(self._budget.seconds())

    @property
    def num_running(self) -> int:
        return len(self._running)

    def _is_unfinished(self) -> bool:
        # A trial whose runs an earlier process had ended is over at once, and others are still to be asked.
        return any(not trial.is_told for trial in self.trials.values()) or self._may_ask()

    # Asking and telling.

    def _ask(self) -> None:
        if not self._config.deterministic:
            while self._has_idle_worker() and self._may_ask():
                self._ask_one(len(self.trials))
            return
        untold = [trial for trial in self.trials.values() if not trial.is_told]
        # A sweep that was killed between two asks of a batch asks the others now.
        batch = untold[0].batch if untold else len(self.trials)
        if all(trial.state == "open" and not trial.runs for trial in untold):
            while len(self.trials) < batch + (self._config.batch_size or 1) and self._may_ask():
                self._ask_one(batch)

    def _has_idle_worker(self) -> bool:
        """Return whether a worker would be idle."""
        waiting = sum(1 for trial in self.trials.values() for _ in self._launchable(trial))
        return len(self._running) + waiting < self._engine.capacity

    def _ask_one(self, batch: int) -> None:
        number = len(self.trials)
        trial = SweepTrial(number, self.study.ask(number), batch)
        # Before anything is launched: a sweep that is killed here goes on with this very point.
        self._record.asked(trial)
        self.trials[number] = trial

    def _may_ask(self) -> bool:
        """Return whether the budget has room for a trial and the space has a point for it."""
        return self._budget.has_room() and not self.sampler.is_exhausted(len(self.trials))

    def _tell(self, trial: SweepTrial) -> None:
        self.study.tell(trial)
        self._record.told(trial, self._budget.seconds())
        trial.is_told = True

    def _tell_batch(self) -> None:
        """Tell the sampler of a batch, in the order of its trials, once all of them have ended."""
        untold = [trial for trial in self.trials.values() if not trial.is_told]
        if all(trial.state != "open" for trial in untold):
            for trial in untold:
                self._tell(trial)

    # Launching.

    def _launch(self) -> None:
        self._ask()
        for trial in list(self.trials.values()):
            if len(self._running) >= self._engine.capacity:
                return
            for seed in self._launchable(trial):
                if len(self._running) >= self._engine.capacity:
                    return
                self._begin(trial, seed)

    def _launchable(self, trial: SweepTrial) -> list[int]:
        """Return the seeds of a trial that may be launched now."""
        if trial.state != "open" or any(run.status not in WHOLE for run in trial.runs.values()):
            return []
        running = [seed for number, seed in self._running if number == trial.number]
        left = [s for s in self._config.seeds if s not in trial.runs and s not in running]
        if self._pruning.is_one_by_one:
            return [] if running else left[:1]
        return left

    def _begin(self, trial: SweepTrial, seed: int) -> None:
        run = self._run_of(trial, seed)
        # A process that was killed may have finished it, or pruned it, without recording that.
        end = run.recorded_end()
        if end is None and self._pruning.looks and run.curve.points:
            reason = self._reason(trial, seed, run.curve)
            end = None if reason is None else run.end_pruned(reason)
        if end is not None:
            self._take(trial, run, end)
            return
        try:
            config = self._base.config_of(trial.point, seed, run.name)
        except ConfigError as error:
            problem = str(error).partition(": ")[2].partition("\n")[0]
            self._take(trial, run, RunEnd("failed", f"its config is impossible: {problem}", {}))
            return
        root = f"{self._storage.place}/{RUNS}"
        task = Task(
            trial.number, seed, config.model_dump(mode="json"), root, run.name,
            self._config.metric.name, self._pruning.looks, sweep=self._storage.name,
        )  # fmt: skip
        self._running[task.key] = run
        self._record.ran(self._budget.seconds())
        self._watcher.began(trial, seed)
        self._engine.launch(task)

    def _run_of(self, trial: SweepTrial, seed: int) -> SweptRun:
        return SweptRun(self._storage, trial.number, seed, self._config.metric.name)

    # What the engine tells.

    def logged(self, task: Task, point: Point) -> str | None:
        """Take a logged value; return why the run is to end, or None."""
        run, trial = self._running[task.key], self.trials[task.trial]
        run.curve.add(point)
        self._watcher.logged(trial, task.seed, point)
        return self._reason(trial, task.seed, run.curve) if self._pruning.looks else None

    def _reason(self, trial: SweepTrial, seed: int, curve: MetricCurve) -> str | None:
        return self._pruning.reason(trial, seed, curve, self._running)

    def ended(self, task: Task, end: RunEnd) -> None:
        """Record how a run ended, and what follows for its trial."""
        run, trial = self._running.pop(task.key), self.trials[task.trial]
        settled = self._settled(task, end)
        if settled is not None:
            check_fatal(settled, f"trial {task.trial} with seed {task.seed}")
            self._take(trial, run, settled)

    def _take(self, trial: SweepTrial, run: SweptRun, end: RunEnd) -> None:
        outcome = run.outcome(end, take=self._config.metric.take, mode=self._mode)
        if end.status in WHOLE and outcome.value is None:
            outcome = self._without_value(run, outcome)
        self._record.ended(trial, outcome)
        self._record.ran(self._budget.seconds())
        trial.runs[run.seed] = outcome
        self._pruning.note(trial, run, outcome)
        self._watcher.ended(trial, outcome)
        self._end_if_over(trial)
        if self._config.deterministic:
            self._tell_batch()
        if not run.storage.exists("run.json"):
            self._refuse_failed_starts(outcome)

    def _refuse_failed_starts(self, outcome: RunOutcome) -> None:
        """Raise LudusError if all runs so far failed before they began: then the points are not to blame."""
        runs = [run for trial in self.trials.values() for run in trial.runs.values()]
        if len(runs) >= _MAX_FAILED_STARTS and all(
            run.status == "failed" and not run.counters for run in runs
        ):
            raise LudusError(
                f"the first {len(runs)} runs failed before they began: {outcome.reason}; fix this, then"
                " run the same command again"
            )

    def _without_value(self, run: SweptRun, outcome: RunOutcome) -> RunOutcome:
        """Return the outcome of a run that ended without a value; raise if no run has ever had one."""
        metric = self._config.metric.name
        if outcome.num_points:
            why = f"{metric} was never a finite number"
            return RunOutcome(**{**vars(outcome), "status": "failed", "reason": why})
        names = logged_names(run.storage)
        has_worked = any(one.num_points for t in self.trials.values() for one in t.runs.values())
        if not has_worked:
            raise ConfigError(
                f"'metric.name' is {metric}, which {run.storage.place} never logged.{nearest(metric, names)}"
                " A sweep's metric stays what it is, so begin it again under another name"
            )
        return RunOutcome(
            **{**vars(outcome), "status": "failed", "reason": f"{metric} was never logged"}
        )

    def _end_if_over(self, trial: SweepTrial) -> None:
        """End a trial of which nothing is left to run, and tell the sampler unless it waits for a batch."""
        if trial.state != "open":
            return
        bad = [run for run in trial.runs.values() if run.status not in WHOLE]
        is_running = any(number == trial.number for number, _ in self._running)
        if is_running or not trial.runs:
            return
        if bad:
            trial.state = "pruned" if bad[0].status == "pruned" else "failed"
            trial.reason = bad[0].reason
        elif len(trial.runs) == len(self._config.seeds):
            level = self._config.metric.confidence
            trial.state = "complete"
            trial.score = mean_interval(list(trial.values.values()), confidence=level)
        elif (reason := self._pruning.seed_reason(trial)) is not None:
            trial.state, trial.reason = "pruned", reason
        else:
            return
        trial.runs = {s: trial.runs[s] for s in self._config.seeds if s in trial.runs}
        self._watcher.ended(trial, None)
        self.after_trial()
        if not self._config.deterministic:
            self._tell(trial)


def sampler_of(config: SweepConfig, base: Base) -> Sampler:
    """Return the sampler; raise ConfigError if it cannot search the space."""
    sampler: Sampler = find("sampler", kind_of(config.sampler))(config.sampler, base.space)
    if problems := list(sampler.problems()):
        raise ConfigError(f"the sweep '{config.name}': " + "; ".join(problems))
    return sampler
