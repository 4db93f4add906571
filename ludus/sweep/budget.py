"""Budget of a sweep: whether there is room for another trial."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ludus.core.errors import ConfigError
from ludus.sweep.config import SweepConfig
from ludus.sweep.trials import WHOLE, SweepTrial


class Budget:
    """Counts what all trials together have used up."""

    def __init__(
        self, config: SweepConfig, trials: Mapping[int, SweepTrial], *, seconds: float
    ) -> None:
        """`seconds` is how long earlier processes have searched."""
        self._config, self._trials = config, trials
        self._seconds_before, self._started = seconds, time.monotonic()

    def has_room(self) -> bool:
        """Return whether no limit is reached."""
        limits = self._config.budget
        if limits.max_trials is not None and len(self._trials) >= limits.max_trials:
            return False
        for counter in ("env_steps", "opt_steps"):
            limit = getattr(limits, f"max_{counter}")
            if limit is not None and self._spent(counter) >= limit:
                return False
        return limits.max_hours is None or self.seconds() < 3600 * limits.max_hours

    def _spent(self, counter: str) -> int:
        """Return how far all runs together have come; in a deterministic sweep, those of whole batches."""
        all_trials = self._trials.values()
        trials = [one for one in all_trials if one.is_told or not self._config.deterministic]
        runs = [run for trial in trials for run in trial.runs.values()]
        if missing := [run for run in runs if run.status in WHOLE and counter not in run.counters]:
            counted = ", ".join(missing[0].counters) or "nothing"
            raise ConfigError(
                f"'budget.max_{counter}' is a limit of {counter}, which these runs do not count; they count"
                f" {counted}. Set it to null, and limit the trials instead"
            )
        return sum(run.counters.get(counter, 0) for run in runs)

    def seconds(self) -> float:
        """Return how long the sweep has run, pauses left out."""
        return self._seconds_before + time.monotonic() - self._started
