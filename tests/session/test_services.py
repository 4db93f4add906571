"""A session fills in the Run and writes nothing into the trainer; stages reach what they need through it."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus import Logger
from ludus.config.registry import register_trainer
from ludus.core import LudusError, Repeat, Run, Stage
from ludus.core.errors import RunError, StorageError
from ludus.core.runtime import InMemoryRuntime
from ludus.store.places import open_storage
from tests.toy import ToyTrainer, toy_config


@register_trainer("toy_served")
class Served(ToyTrainer):
    """One stage, written by the test."""

    def __init__(self, work: Any) -> None:
        super().__init__(toy_config("toy_served"))
        self.work_of_test = work

    def plan(self) -> Repeat:
        return Repeat(name="train", times=1, body=(Stage(name="serve", work=self.work_of_test),))


def test_a_stage_reaches_log_files_models_watcher_and_device_through_its_run(
    tmp_path: Path,
) -> None:
    seen: dict[str, Any] = {}

    def serve(run: Run) -> dict[str, float]:
        assert run.files is not None
        run.files.append("journals/jobs.jsonl").write(b"one\n")
        run.keep_model("models/mine", {"w": torch.ones(2)}, {})
        seen["recalled"] = run.recall_model("models/mine")["w"]
        journal = run.journal("labels")
        journal.put("7", {"label": "cat"})
        assert run.journal("labels") is journal, "two would not know of each other's records"
        seen["labels"] = (journal.keys(), journal.get("7"))
        run.tell("the pool is low", event="pool_low")
        run.log.log("mine/a", 3.0)
        seen["device"], seen["display"] = run.device, run.display
        return {"mine/b": 4.0}

    trainer = Served(serve)
    place = Path(str(trainer.fit(root=str(tmp_path)).run_dir))
    assert seen["recalled"].tolist() == [1.0, 1.0]
    assert seen["device"] == "cpu"
    assert seen["display"] is trainer.terminal_display is trainer.run.display
    assert (place / "journals" / "jobs.jsonl").read_text() == "one\n"
    assert seen["labels"] == (["7"], {"label": "cat"})
    assert (place / "journals" / "labels.jsonl").read_text().count("cat") == 1
    assert (place / "models" / "mine" / "model.json").is_file()
    events = [json.loads(line) for line in (place / "events.jsonl").read_text().splitlines()]
    assert [e["reason"] for e in events if e["event"] == "pool_low"] == ["the pool is low"]
    line = json.loads((place / "metrics.jsonl").read_text().splitlines()[-1])
    assert (line["mine/a"], line["mine/b"]) == (3.0, 4.0)
    assert trainer.logger is trainer.run.log


def test_a_journal_is_written_only_while_the_run_is_ones_own(tmp_path: Path) -> None:
    class Early(Served):
        def prepare(self, **kwargs: Any) -> None:
            super().prepare(**kwargs)
            assert self.run.journal("labels").keys() == []
            with pytest.raises(RunError, match=r"labels\.jsonl cannot be written before the run"):
                self.run.journal("labels").put("7", {"label": "cat"})

    trainer = Early(lambda run: run.journal("labels").put("8", {"label": "dog"}))
    trainer.fit(root=str(tmp_path))
    with pytest.raises(RunError, match="after it has ended; put the record in a stage"):
        trainer.run.journal("labels").put("9", {"label": "cow"})
    assert trainer.run.journal("labels").keys() == ["8"]


def test_a_session_writes_nothing_into_the_trainer(tmp_path: Path) -> None:
    written: list[str] = []

    class Guarded(Served):
        def __setattr__(self, name: str, value: Any) -> None:
            if str(sys._getframe(1).f_globals["__name__"]).startswith("ludus.session.session"):
                written.append(name)
            super().__setattr__(name, value)

    Guarded(lambda run: None).fit(root=str(tmp_path))
    assert written == []


def test_without_a_directory_nothing_is_kept_and_a_stage_does_not_mind() -> None:
    def serve(run: Run) -> None:
        assert run.files is None
        run.keep_model("models/mine", {}, {})
        journal = run.journal("labels")
        journal.put("7", {"label": "cat"})
        assert (journal.keys(), journal.get("7"), journal.get("8")) == (
            ["7"],
            {"label": "cat"},
            None,
        )
        assert run.journal("labels") is journal
        assert run.journal("jobs").keys() == []
        run.tell("nobody hears", event="unheard")
        run.log.log("mine/a", 3.0)
        assert run.log.has_news
        with pytest.raises(LudusError, match="models/mine was not kept: this run has no directory"):
            run.recall_model("models/mine")

    assert Served(serve).fit(runtime=InMemoryRuntime).status == "finished"


def test_a_logger_that_a_script_has_set_hears_a_walk_in_memory_too() -> None:
    logger = Logger({"backends": []})
    trainer = Served(lambda run: {"mine/a": 2.0})
    trainer.set_logger(logger)
    trainer.fit(runtime=InMemoryRuntime)
    assert trainer.logger is trainer.run.log is logger
    assert logger.written == {"mine/a": 2.0}


def test_a_second_fit_has_a_log_of_its_own(tmp_path: Path) -> None:
    trainer = Served(lambda run: None)
    trainer.fit(root=str(tmp_path), name="one")
    first = trainer.logger
    trainer.fit(root=str(tmp_path), name="two")
    assert trainer.logger is not first


def test_what_is_no_logger_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    trainer = Served(lambda run: None)
    trainer.set_logger([])  # type: ignore[arg-type]
    with pytest.raises(LudusError, match=r"set_logger was given a list; give it a ludus\.Logger"):
        trainer.fit(root=str(tmp_path))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["files", "keep_model", "recorded"])
def test_no_attribute_of_a_trainer_is_left_out_of_the_watch_by_its_name(
    tmp_path: Path, name: str
) -> None:
    class Forgetful(Served):
        def prepare(self, *, max_steps: int | None) -> None:
            super().prepare(max_steps=max_steps)
            setattr(self, name, [])

    trainer = Forgetful(lambda run: getattr(trainer, name).append(1))
    result = trainer.fit(root=str(tmp_path))
    assert len(result.inexact_because) == 1
    assert f"the trainer changes ({name})" in result.inexact_because[0]


def test_what_is_no_storage_is_refused_and_one_that_is_keeps_the_run(tmp_path: Path) -> None:
    trainer = Served(lambda run: None)
    trainer.set_storage(str(tmp_path))  # type: ignore[arg-type]
    with pytest.raises(LudusError, match="set_storage was given a str; give it a storage, as"):
        trainer.fit()
    trainer.set_storage(open_storage(tmp_path / "kept"))
    assert trainer.fit().run_dir == str(tmp_path / "kept")


@pytest.mark.parametrize("record", [{"x": (1, 2)}, {"x": float("nan")}, {1: 2}])
def test_a_journal_in_memory_refuses_what_one_on_disk_does(record: Any) -> None:
    journal = Run().journal("labels")
    with pytest.raises(StorageError, match="the journal 'labels'"):
        journal.put("7", record)
    assert journal.keys() == []


def test_what_a_journal_in_memory_returns_is_a_copy() -> None:
    journal, record = Run().journal("labels"), {"list": [1]}
    journal.put("7", record)
    record["list"].append(2)
    found = journal.get("7")
    assert found == {"list": [1]}
    found["list"].append(3)
    assert journal.get("7") == {"list": [1]}
