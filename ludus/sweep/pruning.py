"""Decides with which other runs and trials one is compared, before it is ended early."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.errors import ConfigError
from ludus.sweep.config import SweepConfig
from ludus.sweep.curve import MetricCurve
from ludus.sweep.pruner import Past, Pruner
from ludus.sweep.seed_pruner import SeedPruner
from ludus.sweep.swept_run import SweptRun
from ludus.sweep.trials import RunOutcome, SweepTrial, best_trial

Runs = Mapping[tuple[int, int], SweptRun]


class Pruning:
    """Asks the two pruners. In a deterministic sweep a batch is compared with earlier ones alone."""

    def __init__(self, config: SweepConfig, trials: Mapping[int, SweepTrial]) -> None:
        self._trials, self._mode = trials, config.metric.mode
        self._has_batches = config.deterministic
        self._pruner: Pruner = find("pruner", kind_of(config.pruner))(
            config.pruner, mode=self._mode, seed=config.seed
        )
        self._seed_pruner: SeedPruner = find("seed_pruner", kind_of(config.seed_pruner))(
            config.seed_pruner, mode=self._mode
        )
        self._seed_pruner.check()
        self._ended: dict[tuple[int, int], SweptRun] = {}
        self._is_checked = False

    @property
    def looks(self) -> bool:
        """Whether runs wait for a decision after each value that they log."""
        return self._pruner.looks

    @property
    def is_one_by_one(self) -> bool:
        """Whether the seeds of a trial run one after the other, as each may be the last."""
        return self._has_batches or self._pruner.looks or self._seed_pruner.looks

    def note(self, trial: SweepTrial, run: SweptRun, outcome: RunOutcome) -> None:
        """Keep the curve of a run that has ended."""
        if self.looks and outcome.num_points:
            run.read(outcome)
            self._ended[trial.number, run.seed] = run
        self._check_counter(run, outcome)

    def _check_counter(self, run: SweptRun, outcome: RunOutcome) -> None:
        """Raise ConfigError if runs do not count what the pruner goes by."""
        counter = getattr(self._pruner.config, "counter", None)
        if counter is None or self._is_checked or not run.is_whole:
            return
        self._is_checked = True
        if counter not in outcome.counters:
            raise ConfigError(
                f"'pruner.counter' is {counter}, which these runs do not count; they count"
                f" {', '.join(outcome.counters)}: begin the sweep again under another name"
            )

    def reason(self, trial: SweepTrial, seed: int, curve: MetricCurve, running: Runs) -> str | None:
        """Return why a run is to end after its last value, or None."""
        others = [
            Past(number, run.curve, run.is_whole)
            for (number, of), run in {**self._ended, **running}.items()
            if of == seed and number != trial.number and self._is_known(number, trial)
        ]
        return self._pruner.reason(trial.number, curve, others)

    def seed_reason(self, trial: SweepTrial) -> str | None:
        """Return why no further seed of a trial is run, or None."""
        if not self._seed_pruner.looks:
            return None
        earlier: Iterable[SweepTrial] = self._trials.values()
        known = [other for other in earlier if self._is_known(other.number, trial)]
        best = best_trial(known, self._mode)
        return None if best is None else self._seed_pruner.reason(trial.values, best.values)

    def _is_known(self, number: int, trial: SweepTrial) -> bool:
        return not self._has_batches or self._trials[number].batch < trial.batch
