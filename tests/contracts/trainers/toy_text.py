"""The five stages of text RL, with paid jobs; it moves no counter but `iteration`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus.config.registry import register_trainer
from ludus.core import Repeat, Run, Stage
from tests.toy import ToyTrainer, toy_config


class Server:
    """Fine-tunes for money, outside the run: what was paid is paid, whatever becomes of the run."""

    def __init__(self) -> None:
        self.paid: list[str] = []
        self.at: Callable[[str], None] = lambda moment: None
        """Called at each moment at which a process may be killed."""

    def create(self, key: str) -> str:
        """Take a job, and the money for it; a second job of the same name is paid for too."""
        self.at("before paying")
        self.paid.append(key)
        self.at("after paying")
        return f"job-{key}"

    def find(self, key: str) -> str | None:
        """Return the job that was taken under this name, for nothing."""
        return f"job-{key}" if key in self.paid else None

    def answer(self, job: str) -> float:
        return float(sum(job.encode()) % 97)


@register_trainer("toy_text")
class ToyText(ToyTrainer):
    """The last iteration makes no jobs, and models are saved even when the run is stopped."""

    def __init__(self, config: Any, server: Server | None = None) -> None:
        super().__init__(config)
        self.server = Server() if server is None else server

    derived = ("server",)

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
                Stage(name="create_fine_tune_jobs", work=self.create_jobs, when=is_not_last),
                Stage(name="await_fine_tune_jobs", work=self.await_jobs, when=is_not_last),
            ),
        )
        final = (self.stage("final_test", always=True), self.stage("save_models", always=True))
        return Repeat(name="train", times=1, body=(iteration, *final))

    def create_jobs(self, run: Run) -> Mapping[str, Any]:
        """Pay for one job an iteration; the journal knows of it before the server does."""
        journal, key = run.journal("jobs"), str(run.round("iteration"))
        record = journal.get(key)
        if record is None:
            self.server.at("before asking")
            journal.put(key, {"job": None})
            # Nobody can have taken a job that no journal knew of.
            journal.put(key, {"job": self.server.create(key)})
        elif record["job"] is None:
            # A kill came between: only the server knows whether the job was taken.
            journal.put(key, {"job": self.server.find(key) or self.server.create(key)})
        return self.work.do("create_fine_tune_jobs")

    def await_jobs(self, run: Run) -> Mapping[str, Any]:
        record = run.journal("jobs").get(str(run.round("iteration")))
        # Without a directory a journal lasts as long as the process.
        job = f"job-{run.round('iteration')}" if record is None else record["job"]
        return {"toy/answer": self.server.answer(job), **self.work.do("await_fine_tune_jobs")}


def make(server: Server | None = None) -> ToyText:
    return ToyText(toy_config("toy_text"), server)
