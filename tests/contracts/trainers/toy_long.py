"""One stage that would take an hour: it journals each piece and stops between two when asked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config.registry import register_trainer
from ludus.core import Interrupted, Repeat, Run, Stage
from tests.toy import ToyTrainer, toy_config

NUM_PIECES = 6


@register_trainer("toy_long")
class ToyLong(ToyTrainer):
    interrupt_after: int | None = None
    """Raise the flag that a signal would raise, once this many pieces were done in this process."""

    def plan(self) -> Repeat:
        body = (
            self.stage("train_step"),
            Stage(name="await_jobs", work=self.await_jobs),
            self.stage("test"),
        )
        rounds = Repeat(name="iteration", times=4, counter="iteration", body=body)
        return Repeat(name="train", times=1, body=(rounds,))

    def await_jobs(self, run: Run) -> Mapping[str, Any]:
        """Do the pieces not yet in the journal; what is there is never done twice."""
        iteration, num_here = run.counters["iteration"], 0
        journal = run.journal("jobs")
        keys = [f"{iteration}/{piece}" for piece in range(NUM_PIECES)]
        for piece, key in enumerate(keys):
            if journal.get(key) is None:
                journal.put(key, {"answer": iteration * NUM_PIECES + piece})
                num_here += 1
                if num_here == self.interrupt_after:
                    run.interrupted = True
            if run.interrupted:
                raise Interrupted
        answers = [record["answer"] for key in keys if (record := journal.get(key)) is not None]
        return {"toy/answers": sum(answers)} | self.work.do("await_jobs")


def make() -> ToyLong:
    return ToyLong(toy_config("toy_long"))
