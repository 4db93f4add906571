"""What a run does outside itself it does once, wherever it is killed; without a journal it does not."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ludus.core import Run
from ludus.testing.trainers import (
    Killed,
    check_effects_once,
    count_boundaries,
    ending_of,
    run_trainer,
)
from tests.conftest import modules_in

toy: Any = modules_in("contracts/trainers")["toy_text"]
JOBS = ["0", "1"]
"""One in each iteration but the last."""


class Forgetful(toy.ToyText):
    """Pays without asking the journal."""

    def create_jobs(self, run: Run) -> Any:
        self.server.create(str(run.round("iteration")))
        return self.work.do("create_fine_tune_jobs")


class Late(toy.ToyText):
    """Writes to the journal when it has paid, and not before."""

    def create_jobs(self, run: Run) -> Any:
        journal, key = run.journal("jobs"), str(run.round("iteration"))
        if journal.get(key) is None:
            journal.put(key, {"job": self.server.create(key)})
        return self.work.do("create_fine_tune_jobs")


def made_by(kind: type, server: Any) -> Callable[[], Any]:
    return lambda: kind(toy.make().config, server)


def served(kind: type) -> Callable[[], tuple[Callable[[], Any], list[str]]]:
    def begin() -> tuple[Callable[[], Any], list[str]]:
        server = toy.Server()
        return made_by(kind, server), server.paid

    return begin


def killed_in_the_stage(kind: type, root: Path, moment: str) -> Any:
    """Kill a run at a moment of its second job, take it up again, and return its server."""
    server, name = toy.Server(), moment.replace(" ", "-")

    def kill(now: str) -> None:
        if now == moment and len(server.paid) >= 1 + ("after" in moment):
            server.at = lambda moment: None
            raise Killed

    server.at = kill
    with contextlib.suppress(Killed):
        run_trainer(made_by(kind, server), root, name)
    assert run_trainer(made_by(kind, server), root, name) is not None
    return server


def test_a_job_is_paid_once_wherever_between_two_stages_the_run_is_killed(tmp_path: Path) -> None:
    check_effects_once(served(toy.ToyText), tmp_path)


def test_a_job_that_is_in_no_journal_is_seen_to_be_paid_twice(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"killed at boundary \d+: '0' was done 2 times"):
        check_effects_once(served(Forgetful), tmp_path)


@pytest.mark.parametrize("moment", ["before asking", "before paying", "after paying"])
def test_a_job_is_paid_once_wherever_within_its_stage_the_run_is_killed(
    moment: str, tmp_path: Path
) -> None:
    server = killed_in_the_stage(toy.ToyText, tmp_path, moment)
    assert server.paid == JOBS
    run_trainer(toy.make, tmp_path, "whole")
    found = ending_of(tmp_path / moment.replace(" ", "-"))
    assert found == ending_of(tmp_path / "whole")


def test_a_journal_that_is_written_after_the_effect_is_seen_to_be_too_late(tmp_path: Path) -> None:
    assert killed_in_the_stage(Late, tmp_path, "after paying").paid == ["0", "1", "1"]


def test_a_run_that_moves_iteration_alone_is_logged_along_it(tmp_path: Path) -> None:
    run_trainer(toy.make, tmp_path, "run")
    assert count_boundaries(tmp_path / "run") > 10
    text = (tmp_path / "run/metrics.jsonl").read_text()
    assert '"iteration": 2' in text
    assert '"opt_steps"' not in text.replace('"opt_steps": 0', "")
