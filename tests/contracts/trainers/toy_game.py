"""Two roles that train in turn, each with a schedule of its own."""

from __future__ import annotations

from ludus.config.registry import register_trainer
from ludus.core import Repeat
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_game")
class ToyGame(ToyTrainer):
    def plan(self) -> Repeat:
        def role(name: str) -> Repeat:
            return Repeat(
                name=name,
                times=1,
                body=(
                    self.stage("sync_target", when=lambda run: run.counters["iteration"] % 2 == 0),
                    self.stage("fit"),
                    self.stage("collect", when=lambda run: run.counters["iteration"] % 3 == 2),
                ),
            )

        rounds = Repeat(
            name="round",
            times=self.config.num_rounds,
            counter="iteration",
            body=(
                role("host"),
                role("agent"),
                self.stage("evaluate", when=lambda run: run.counters["iteration"] % 2 == 1),
            ),
        )
        return Repeat(name="train", times=1, body=(rounds,))


def make() -> ToyGame:
    return ToyGame(toy_config("toy_game", num_rounds=5))
