"""Rounds of querying and labelling, each with epochs that early stopping may leave."""

from __future__ import annotations

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_active")
class ToyActive(ToyTrainer):
    def plan(self) -> Repeat:
        step = Repeat(name="step", times=2, body=(self.stage("train_step"),))
        epoch = Repeat(name="epoch", times=4, counter="epoch", body=(step,))
        rounds = Repeat(
            name="round",
            times=self.config.num_rounds,
            counter="iteration",
            body=(self.stage("query"), self.stage("label"), epoch, self.stage("test")),
        )
        return Repeat(name="train", times=1, body=(self.stage("select_model"), rounds))

    def after_epoch(self, run: Run) -> None:
        if float(self.work.values.sum()) > 0:
            run.leave("epoch", "no better")


def make() -> ToyActive:
    return ToyActive(toy_config("toy_active"))
