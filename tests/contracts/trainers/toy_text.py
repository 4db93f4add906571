"""The five stages of text RL; the last iteration makes no jobs, and models are saved even when stopped."""

from __future__ import annotations

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_text")
class ToyText(ToyTrainer):
    def plan(self) -> Repeat:
        def is_not_last(run: Run) -> bool:
            return run.counters["iteration"] < self.config.num_rounds - 1

        iteration = Repeat(
            name="iteration",
            times=self.config.num_rounds,
            counter="iteration",
            body=(
                self.stage("sample_rollouts"),
                self.stage("log_stats"),
                self.stage("test", when=lambda run: run.counters["iteration"] != 1),
                self.stage("create_fine_tune_jobs", when=is_not_last),
                self.stage("await_fine_tune_jobs", when=is_not_last),
            ),
        )
        final = (self.stage("final_test", always=True), self.stage("save_models", always=True))
        return Repeat(name="train", times=1, body=(iteration, *final))


def make() -> ToyText:
    return ToyText(toy_config("toy_text"))
