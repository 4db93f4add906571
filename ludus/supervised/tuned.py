"""A supervised trainer, as far as a script decides how the weights move."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from ludus.core import Run
from ludus.core.errors import ConfigError, LudusError
from ludus.nn.schedule import HIGHEST, OfStep, Schedule
from ludus.nn.torch_optimizer import Make, TorchMade
from ludus.supervised.fit import Fit
from ludus.supervised.rate_control import RateControl
from ludus.supervised.update import Update

_PLAIN = (bool, int, float, str, tuple, type(None))
"""Options that are written down by their values."""


class Tuned:
    """Takes a schedule and learning rates from a script."""

    config: Any
    run: Run
    update: Update
    fitting: Fit
    note_given: Callable[..., None]
    _given_schedule: OfStep | None = None
    _given_optimizer: Make | None = None
    given_classes: dict[str, str]
    rate_control: RateControl
    """What decides the learning rate besides the step."""

    def set_schedule(self, function: OfStep) -> None:
        """Multiply the optimizer's learning rate by what this function of the optimisation step returns.

        It takes the place of the config's schedule. A run that began with it is resumed by a script that
        gives it again; it should depend on the step alone, or have state_dict and load_state_dict.
        """
        if not callable(function):
            raise ConfigError(
                f"set_schedule was given a {type(function).__name__}; give a function that takes the"
                " number of the optimisation step and returns the factor of the learning rate"
            )
        self._given_schedule = function
        self.config = self.config.replace(learning_rate_schedule={"kind": "given"})
        self.note_given(schedule=function)

    def set_optimizer(
        self, optimizer: Callable[..., TorchMade], *, lr: float | None = None, **options: object
    ) -> None:
        """Let this class of torch.optim.Optimizer, or function from parameters to one, move the weights.

        It is called with the parameters and the options, `lr` among them where it is given, and takes the
        place of the config's optimizer; the schedule starts from `lr`. Its state is saved with the run, and
        a run that began with it is resumed by a script that gives it again.
        """
        if not callable(optimizer):
            raise ConfigError(
                f"set_optimizer was given a {type(optimizer).__name__}; give a class of"
                " torch.optim.Optimizer, or a function that takes parameters and returns one"
            )
        given = dict(options) if lr is None else {"lr": lr, **options}
        rate = self.config.optimizer.learning_rate if lr is None else lr
        self.config = self.config.replace(optimizer={"kind": "given", "learning_rate": rate})
        self._given_optimizer = lambda parameters: optimizer(parameters, **given)
        name = getattr(optimizer, "__name__", type(optimizer).__name__)
        # A resume goes on with the saved options, so others than those it began with are refused.
        words = [f"{key}={value!r}" for key, value in options.items() if isinstance(value, _PLAIN)]
        self.given_classes["optimizer"] = f"{name}({', '.join(sorted(words))})" if words else name

    def set_learning_rate(self, rate: float | None) -> None:
        """Learn at this rate from the next step on, whatever the schedule says; None goes by it again.

        For hooks; it is saved with the run.
        """
        if not hasattr(self, "rate_control"):
            raise LudusError(
                "set_learning_rate is for hooks of a run; before fit set 'optimizer.learning_rate'"
            )
        if rate is not None:
            is_number = isinstance(rate, int | float) and not isinstance(rate, bool)
            if not is_number or not (math.isfinite(rate) and 0 <= rate <= HIGHEST):
                raise LudusError(
                    f"set_learning_rate was given {rate!r}; a learning rate is a number from 0 to"
                    f" {HIGHEST:g}, or None to go by the schedule"
                )
            learner = getattr(self.update, "learner", None)
            if learner is not None and not learner.gradient_step.is_safe_at(rate):
                raise LudusError(
                    f"set_learning_rate was given {rate:g}, at which a step could leave the range of"
                    " float32, and this run does not look for that; raise 'optimizer.learning_rate' to the"
                    " highest rate, and set lower ones in hooks"
                )
            rate = float(rate)
        self.rate_control.override = rate

    def _schedule_for(self, num_batches: int | None) -> Schedule:
        return self.rate_control.schedule(self.config.count_steps(num_batches))

    @property
    def schedule(self) -> Schedule:
        """How the learning rate changes with the optimisation steps."""
        return self.fitting.schedule

    def _learning_rate(self) -> float:
        """Return the learning rate of the next step: what a hook has set, or the schedule's."""
        override = self.rate_control.override
        return self.fitting.learning_rate(self.run) if override is None else override

    def consulted(self) -> Mapping[str, object]:
        """Return the schedule that a script gave."""
        return {} if self._given_schedule is None else {"schedule": self._given_schedule}
