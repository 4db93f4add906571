"""Iterations that collect, estimate, and go through what was collected in epochs of minibatches."""

from __future__ import annotations

from ludus.config.registry import register_trainer
from ludus.core import Repeat
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_on_policy")
class ToyOnPolicy(ToyTrainer):
    def plan(self) -> Repeat:
        minibatch = Repeat(name="minibatch", times=2, body=(self.stage("train_step"),))
        passes = Repeat(name="epoch", times=2, counter="epoch", body=(minibatch,))
        iteration = Repeat(
            name="iteration",
            times=self.config.num_rounds,
            counter="iteration",
            body=(self.stage("collect"), self.stage("estimate"), passes),
        )
        pretrain = self.stage("pretrain", when=lambda run: True)
        return Repeat(name="train", times=1, body=(pretrain, iteration, self.stage("test")))


def make() -> ToyOnPolicy:
    return ToyOnPolicy(toy_config("toy_on_policy"))
