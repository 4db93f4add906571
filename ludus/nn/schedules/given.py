"""The schedule `given`: a function of the step that a script passes to `set_schedule`."""

from __future__ import annotations

from typing import ClassVar, Literal

from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.nn.schedule import ScheduleConfig


class Given(ScheduleConfig):
    """The initial value times the result of a script's function."""

    is_of_steps: ClassVar[bool] = False

    kind: Literal["given"]
    """The function of a script: trainer.set_schedule(lambda step: factor)."""


@register("schedule", "given")
class GivenSchedule:
    """A placeholder for the function, which no config can hold."""

    Config = Given

    def __init__(self, config: Given, *, initial: float, num_steps: int) -> None:
        raise ConfigError(
            "the kind of a schedule is 'given', but the script gave none; call trainer.set_schedule(function)"
            " before fit, or choose another kind"
        )
