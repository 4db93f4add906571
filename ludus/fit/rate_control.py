"""Control of the learning rate other than by step: reduce on plateau, and a rate set by a hook."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from ludus.core import Observer, Run, states
from ludus.core.errors import LudusError
from ludus.core.services import Log
from ludus.fit.config import FitConfig
from ludus.judge.scores import Score
from ludus.nn.schedule import HIGHEST, OfStep, Scaled, Schedule
from ludus.nn.schedules.plateau import Plateau, PlateauSchedule
from ludus.nn.step import GradientStep

PART = "learning_rate"
"""The name of the part."""
UNSET: Mapping[str, Any] = {"override": None, "plateau": None}
"""The state of a run whose rate depends on the step alone, as in versions before this part."""


class RateControl:
    """Makes the schedules of a run and holds their state; a part."""

    def __init__(self, config: FitConfig, given: OfStep | None) -> None:
        """`given` is the factor function passed by a script, for a schedule of kind `given`."""
        self._section, self._initial = config.learning_rate_schedule, config.optimizer.learning_rate
        self.override: float | None = None
        """The learning rate set by a hook; None follows the schedule."""
        self.plateau: PlateauSchedule | None = None
        self.score: Score | None = None
        self._given = None if given is None else Scaled(given, self._initial)
        if isinstance(self._section, Plateau):
            section = self._section
            self.plateau = PlateauSchedule(section, initial=self._initial, num_steps=1)
            self.score = Score("plateau", section.metric, section.mode, min_delta=section.min_delta)

    def schedule(self, run_steps: int) -> Schedule:
        """Return the schedule of a loop of this many steps."""
        of_step = self._given if self.plateau is None else self.plateau
        return Schedule(self._section, initial=self._initial, run_steps=run_steps, of_step=of_step)

    def begin(self) -> None:
        """Reset the plateau metric, for a loop that is entered again; a rate set by a hook stays."""
        if self.plateau is not None:
            assert isinstance(self._section, Plateau)
            fresh = PlateauSchedule(self._section, initial=self._initial, num_steps=1)
            self.plateau.load_state_dict(fresh.state_dict())

    def update(self, run: Run, metrics: Mapping[str, float]) -> None:
        """Update with logged metrics; the monitored one may reduce the learning rate."""
        if self.plateau is None or self.score is None or self.score.metric not in metrics:
            return
        plateau, value = self.plateau, float(metrics[self.score.metric])
        if plateau.update(self.score.is_progress(value, plateau.peak), value):
            run.tell(
                f"{self.score.metric} is no better than {plateau.peak}: the learning rate is"
                f" {plateau.value:g} from here",
                event="learning_rate",
            )

    def watching(self, log: Log) -> Observer:
        """Return an observer that passes on the metrics logged at each boundary."""

        def watch(run: Run) -> None:
            if log.written_at == run.boundaries:
                self.update(run, log.written)

        return watch

    def set(self, rate: float | None, gradient_step: GradientStep | None) -> None:
        """Override the schedule with this rate; None follows it again. Raise LudusError if it is no rate."""
        if rate is not None:
            is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
            if not is_number or not (math.isfinite(rate) and 0 <= rate <= HIGHEST):
                raise LudusError(
                    f"set_learning_rate was given {rate!r}; a learning rate is a number from 0 to"
                    f" {HIGHEST:g}, or None to go by the schedule"
                )
            if gradient_step is not None and not gradient_step.is_safe_at(rate):
                raise LudusError(
                    f"set_learning_rate was given {rate:g}, at which a step could leave the range of"
                    " float32, and this run does not look for that; raise 'optimizer.learning_rate' to the"
                    " highest rate, and set lower ones in hooks"
                )
            rate = float(rate)
        self.override = rate

    def state_dict(self) -> dict[str, Any]:
        """Return the rate set by a hook, and the plateau state of the metric."""
        plateau = None if self.plateau is None else self.plateau.state_dict()
        return {"override": self.override, "plateau": plateau}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore a saved state."""
        states.check_keys(state, "override", "plateau")
        override = None
        if state["override"] is not None:
            override = states.number(state, "override", at_least=0.0)
            if override > HIGHEST:
                raise states.StateError("override", f"is {override:g}, above {HIGHEST:g}")
        if self.plateau is not None:
            with states.within("plateau"):
                self.plateau.load_state_dict(states.mapping(state, "plateau"))
        elif state["plateau"] is not None:
            raise states.StateError("plateau", "is there, where this run has none")
        self.override = override
