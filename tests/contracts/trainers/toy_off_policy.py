"""Warm-up, then epochs of collecting and a number of updates that depends on what was collected."""

from __future__ import annotations

from ludus.config.registry import register_trainer
from ludus.core import Repeat
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_off_policy")
class ToyOffPolicy(ToyTrainer):
    def plan(self) -> Repeat:
        step = Repeat(
            name="step",
            times=lambda run: run.counters["env_steps"] % 3,
            after="after_update",
            body=(self.stage("train_step"),),
        )
        epoch = Repeat(
            name="epoch",
            until=lambda run: run.counters["env_steps"] >= 7,
            counter="epoch",
            body=(
                self.stage("collect"),
                step,
                self.stage("evaluate", when=lambda run: run.counters["epoch"] % 2 == 1),
            ),
        )
        return Repeat(name="train", times=1, body=(self.stage("warm_up"), epoch))


def make() -> ToyOffPolicy:
    return ToyOffPolicy(toy_config("toy_off_policy"))
