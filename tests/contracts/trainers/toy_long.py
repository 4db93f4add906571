"""One stage that would take an hour: it journals each piece and stops between two when asked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.core import Interrupted, Repeat, Run, Stage
from ludus.registry import register_trainer
from tests.toy import ToyTrainer, toy_config

NUM_PIECES = 6


@register_trainer("toy_long")
class ToyLong(ToyTrainer):
    journal_path: Path | None = None
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
        journal = self._read_journal()
        for piece in range(NUM_PIECES):
            key = f"{iteration}/{piece}"
            if key not in journal:
                journal[key] = float(len(journal))
                if self.journal_path is not None:
                    self.journal_path.write_text(json.dumps(journal))
                num_here += 1
                if num_here == self.interrupt_after:
                    run.interrupted = True
            if run.interrupted:
                raise Interrupted
        answers = [journal[f"{iteration}/{piece}"] for piece in range(NUM_PIECES)]
        return {"toy/answers": sum(answers)} | self.work.do("await_jobs")

    def _read_journal(self) -> dict[str, float]:
        if self.journal_path is None or not self.journal_path.exists():
            return {}
        return json.loads(self.journal_path.read_text())


def make() -> ToyLong:
    return ToyLong(toy_config("toy_long"))
