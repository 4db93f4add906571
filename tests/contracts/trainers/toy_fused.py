"""A whole iteration in one stage, as a captured graph would be."""

from __future__ import annotations

from ludus.config.registry import register_trainer
from ludus.core import Repeat
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_fused")
class ToyFused(ToyTrainer):
    def plan(self) -> Repeat:
        rounds = Repeat(
            name="iteration",
            times=self.config.num_rounds,
            counter="iteration",
            body=(self.stage("fit"),),
        )
        return Repeat(name="train", times=1, body=(rounds,))


def make() -> ToyFused:
    return ToyFused(toy_config("toy_fused", num_rounds=8))
