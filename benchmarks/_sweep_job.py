"""A job of one second: ten stages that sleep a tenth each, so that what is left over is the sweep's own."""

import time
from collections.abc import Mapping
from typing import Any

from ludus.config import TrainerConfig, register_trainer
from ludus.core import Repeat, Run, Stage, Stateful
from ludus.session.trainer import Trainer

NUM_STEPS, STEP_SECONDS = 10, 0.1
JOB_SECONDS = NUM_STEPS * STEP_SECONDS


class SleepConfig(TrainerConfig):
    """Two numbers to search over."""

    x: float
    """The first."""
    y: float
    """The second."""


@register_trainer("sleep_a_second")
class SleepTrainer(Trainer):
    """Sleeps, and logs a score at each step."""

    Config = SleepConfig

    def parts(self) -> Mapping[str, Stateful]:
        """Return nothing: it has no state."""
        return {}

    def plan(self) -> Repeat:
        """Return ten steps."""
        sleep = Stage(name="sleep", work=self.sleep)
        step = Repeat(name="step", times=NUM_STEPS, counter="opt_steps", body=[sleep])
        return Repeat(name="train", times=1, body=[step])

    def sleep(self, run: Run) -> Mapping[str, Any]:
        """Sleep for a tenth of a second."""
        time.sleep(STEP_SECONDS)
        run.log.log("job/score", score(self.config.x, self.config.y))
        run.log.write(run)
        return {}


def score(x: float, y: float) -> float:
    """Return how good a point is."""
    return -((x - 0.3) ** 2) - (y - 0.6) ** 2
