"""Epochs of steps with a validation after each; stopped early from inside."""

from __future__ import annotations

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_supervised")
class ToySupervised(ToyTrainer):
    def plan(self) -> Repeat:
        step = Repeat(name="step", times=lambda run: 3, body=(self.stage("train_step"),))
        epoch = Repeat(
            name="epoch",
            times=self.config.num_rounds,
            counter="epoch",
            body=(step, self.stage("validate", when=lambda run: run.counters["epoch"] != 1)),
        )
        return Repeat(name="train", times=1, body=(epoch, self.stage("test", always=True)))

    def after_validate(self, run: Run) -> None:
        if run.counters["epoch"] == 4:
            run.stop("good enough")


def make() -> ToySupervised:
    return ToySupervised(toy_config("toy_supervised", num_rounds=9))
