"""The config of a run that is counted in rounds, or in iterations: its intervals, and the stages by them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ludus.config.base import TrainerConfig
from ludus.core.intervals import Work, follow_ups, never_reached
from ludus.core.plan import Stage


class CountedConfig(TrainerConfig):
    """Has keys `max_<unit>s` and `<verb>_every_<unit>s` to log, keep, evaluate, which a subclass declares."""

    unit: ClassVar[str] = "round"
    """The counter of the run's length."""
    tensors: ClassVar[str] = "the games"
    """The noun for the tensors that take the place of worker processes, in messages."""
    records_last: ClassVar[bool] = False
    """Whether the last round is recorded in any case."""

    @property
    def length(self) -> int:
        """The number of rounds or iterations of the run."""
        return int(getattr(self, f"max_{self.unit}s"))

    def _every(self, verb: str) -> tuple[str, int]:
        key = f"{verb}_every_{self.unit}s"
        return key, getattr(self, key)

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never reaches, with the value that means never."""
        intervals = map(self._every, ("log", "keep"))
        return {key: 0 for key, interval in intervals if interval > self.length}

    def problems_of_intervals(self) -> Iterator[str]:
        """Yield each interval that is longer than the run."""
        for key in CountedConfig.unreached(self):
            yield never_reached(key, getattr(self, key), f"'max_{self.unit}s'", self.length)

    def problems_of_evaluation(self) -> Iterator[str]:
        """Yield each key of the section `evaluation` that is not read, as there are no evaluations."""
        yield from self.evaluation.unused(*self._every("evaluate"))  # type: ignore[attr-defined]

    def problems_of_settings(self) -> Iterator[str]:
        """Yield each setting that would have no effect."""
        workers, every_epochs = self.settings.workers, self.settings.checkpoint.every_epochs
        if workers:
            yield (
                f"'settings.workers' is {workers}, but {self.tensors} are tensors of this process; set it"
                " to 0"
            )
        if every_epochs:
            yield (
                f"'settings.checkpoint.every_epochs' is {every_epochs}, but a run counted in {self.unit}s"
                " has no epochs; set it to 0, and use every_opt_steps"
            )

    def follow_ups(self, *, evaluate: Work, record: Work, save: Work) -> tuple[Stage, ...]:
        """Return the stages that follow a round, each at its interval."""
        intervals = {f"{verb}_every": self._every(verb)[1] for verb in ("evaluate", "log", "keep")}
        return follow_ups(
            self.unit, self.length, **intervals,
            evaluate=evaluate, record=record, keep=save, records_last=self.records_last,
        )  # fmt: skip
