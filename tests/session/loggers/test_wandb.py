"""Runs are logged to W&B, offline here: one id, each line once, and nothing of W&B's in the process."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import ConfigError
from ludus.session.loggers import wandb as logger
from ludus.session.remote import wandb_files
from ludus.store.local import LocalStorage
from ludus.store.note import read_note, write_note
from tests.faults.small_run import interrupt_after, small_config, train

CANARY = "canary" + 34 * "0"


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Keep what W&B writes outside of the run in the test's folder, and end its process."""
    for name in ("CACHE", "CONFIG", "DATA", "ARTIFACT"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "wandb-own"))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_ERROR_REPORTING", "false")
    for name in ("WANDB_API_KEY", "WANDB_BASE_URL", "WANDB_SERVICE", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    yield
    if "wandb" in sys.modules:
        import wandb

        wandb.teardown()


def section(**changes: Any) -> dict[str, Any]:
    return {
        "kind": "wandb", "project": "digits", "entity": None, "mode": "offline", "tags": [],
        "best_model": False, "wait_seconds": 60.0, **changes,
    }  # fmt: skip


def logging_to(**changes: Any) -> dict[str, Any]:
    return {"settings.loggers": [section(**changes)]}


def shown(run: Path) -> list[Any]:
    """Return the records of all W&B's files of a run, in the order of their processes."""
    from wandb.proto import wandb_internal_pb2

    found = []
    for path in sorted(run.glob("wandb/offline-run-*/run-*.wandb")):
        for data in wandb_files._records(path.read_bytes()):
            record = getattr(wandb_internal_pb2, "Record")()  # noqa: B009
            record.ParseFromString(data)
            found.append(record)
    return found


def rows(run: Path) -> list[dict[str, Any]]:
    """Return the rows of the history, as `wandb sync` would send them; nested keys are joined by dots."""
    return [
        {".".join(item.nested_key): json.loads(item.value_json) for item in record.history.item}
        for record in shown(run)
        if record.HasField("history")
    ]


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def check_whole(run: Path) -> None:
    """Check that every line of the log is one row, with its counters and scalars."""
    found, expected = rows(run), lines(run)
    assert [row["_step"] for row in found] == list(range(1, len(expected) + 1))
    for row, line in zip(found, expected, strict=True):
        scalars = {name: value for name, value in line.items() if not isinstance(value, dict)}
        assert {name: row[name] for name in scalars} == scalars


@pytest.mark.covers("000-S12")
def test_a_run_is_shown_with_its_name_group_tags_config_metrics_files_and_best_model(
    tmp_path: Path,
) -> None:
    class Films:
        def after_epoch(self, run: ludus.Run) -> None:
            run.record({"mine/score": 2.0 + run.counters["epoch"]})
            run.log.text("note", "one line\ud800")
            run.log.image("frame", torch.zeros(3, 2, 2, dtype=torch.uint8))
            run.log.histogram("weights", torch.arange(4.0))

    train(tmp_path, "first", each_epoch=interrupt_after(1))
    run = tmp_path / "first"
    storage = LocalStorage(run)
    write_note(storage, {**read_note(storage), "group": "band"})
    storage.write("tags.json", b'{"tags": ["good"]}')
    trainer = ludus.Trainer(small_config(**logging_to(tags=["new"], entity="we", best_model=True)))
    trainer.add(Films())
    trainer.fit(root=str(tmp_path), name="first", resume="approximate")
    check_whole(run)
    (begun,) = [record.run for record in shown(run) if record.HasField("run")]
    assert begun.run_id == read_note(storage)["run_id"]
    assert (begun.display_name, begun.run_group, begun.project) == ("first", "band", "digits")
    assert (begun.entity, begun.job_type, sorted(begun.tags)) == (
        "we",
        "supervised",
        ["good", "new"],
    )
    config = {one.key: json.loads(one.value_json) for one in begun.config.update}
    assert config["optimizer.learning_rate"] == trainer.config.optimizer.learning_rate
    assert config["settings.loggers.0.project"] == "digits"
    axes = {r.metric.glob_name: r.metric.step_metric for r in shown(run) if r.HasField("metric")}
    assert axes["*"] == "opt_steps"
    with_films = [row for row in rows(run) if "mine/score" in row]
    assert {row["note"] for row in with_films} == {"one line?"}
    assert {row["weights._type"] for row in with_films} == {"histogram"}
    assert {row["frame._type"] for row in with_films} == {"image-file"}
    (model,) = [record.artifact for record in shown(run) if record.HasField("artifact")]
    assert (model.type, sorted(model.aliases)) == ("model", ["best", "latest"])
    names = {entry.path for entry in model.manifest.contents}
    assert names <= {"model.json", "weights.safetensors"}
    summary = {
        item.key: json.loads(item.value_json)
        for record in shown(run)
        if record.HasField("summary")
        for item in record.summary.update
        if item.key
    }
    best = json.loads((run / "models/best/model.json").read_text())
    assert (summary["best_score"], summary["ending"]) == (best["score"], "finished")


def test_a_run_that_was_killed_is_one_curve_under_one_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = {**logging_to(), "settings.checkpoint.every_stages": 4}
    rarely = {**logging_to(), "settings.checkpoint.every_stages": 1000}
    train(tmp_path, "run", each_epoch=interrupt_after(1), **often)
    with pytest.raises(ZeroDivisionError):
        train(tmp_path, "run", each_epoch=lambda trainer: 1 // (1 - trainer.epoch), **rarely)
    run = tmp_path / "run"
    assert len(rows(run)) == len(lines(run)) > 2
    # A kill leaves a file of W&B with half a record, or with none at all.
    newest = sorted(run.glob("wandb/offline-run-*/run-*.wandb"))[-1]
    newest.write_bytes(newest.read_bytes()[:-200])
    train(tmp_path, "run", **often)
    check_whole(run)
    assert len({record.run.run_id for record in shown(run) if record.HasField("run")}) == 1
    assert not any(record.HasField("artifact") for record in shown(run))
    assert [r.exit.exit_code for r in shown(run) if r.HasField("exit")] == [logger._KILLED, 0]


def test_nothing_of_wandb_is_installed_in_the_process(tmp_path: Path) -> None:
    def installed() -> tuple[object, ...]:
        signals = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
        streams = ["write" in vars(s) for s in (sys.__stdout__, sys.__stderr__)]
        return sys.exit, sys.excepthook, sys.stdout, sys.stderr, *signals, *streams

    before, during = installed(), []
    train(tmp_path, "run", each_epoch=lambda trainer: during.append(installed()), **logging_to())
    assert installed() == before
    assert {found[:4] for found in during} == {before[:4]}
    kinds = {record.WhichOneof("record_type") for record in shown(tmp_path / "run")}
    assert not kinds & {"stats", "output", "output_raw", "environment"}
    assert list((tmp_path / "run").rglob("requirements.txt")) == []


def test_without_a_network_an_online_run_goes_on_offline_and_says_so_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", CANARY)
    monkeypatch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
    monkeypatch.setattr(logger, "_PART_TO_BEGIN", 0.02)
    changes = {**logging_to(mode="online"), "settings.display": "plain"}
    assert train(tmp_path, "run", **changes).status == "finished"
    check_whole(tmp_path / "run")
    output = capsys.readouterr()
    assert output.out.count("W&B project digits does not answer; the run is logged offline") == 1
    assert f"wandb sync {tmp_path / 'run' / 'wandb'}/offline-run-" in output.out
    assert CANARY not in output.out + output.err
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or CANARY.encode() not in path.read_bytes(), path


@pytest.mark.parametrize("key", [None, "too short"])
def test_without_a_key_an_online_run_does_not_begin(
    key: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if key is not None:
        monkeypatch.setenv("WANDB_API_KEY", key)
    with pytest.raises(ConfigError, match="has no valid API key: run `wandb login`") as refused:
        train(tmp_path, "run", **logging_to(mode="online"))
    assert "too short" not in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_without_the_library_a_run_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"needs wandb; install it with: pip install 'ludus\[wandb\]'"
    ):
        train(tmp_path, "run", **logging_to())
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"project": "a/b"}, "project 'a/b' cannot name a project of W&B"),
        ({"project": ""}, "project '' cannot name"),
        ({"mode": "later"}, "mode"),
        ({"tags": "one"}, "tags"),
        ({"tags": ["y" * 65]}, "W&B takes tags of 1 to 64 characters"),
        ({"tags": [""]}, "tags holds ''; W&B takes tags of 1 to 64"),
        ({"entity": 3}, "entity"),
        ({"best_model": 1}, "best_model"),
        ({"wait_seconds": -1.0}, "wait_seconds"),
    ],
)
def test_a_wrong_key_is_one_sentence_before_work(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        small_config(**logging_to(**changes))


def test_the_last_step_of_a_torn_file_of_several_blocks_is_found(tmp_path: Path) -> None:
    from wandb.proto import wandb_internal_pb2

    data, at = bytearray(7), 0
    for number in range(1, 40):
        record = getattr(wandb_internal_pb2, "Record")()  # noqa: B009
        record.history.step.num = number
        item = record.history.item.add()
        item.key, item.value_json = "text", json.dumps("x" * (5000 if number > 1 else 32726))
        at = _append(data, record.SerializeToString())
        # The first leaves room for no head in its block.
        assert number > 1 or len(data) % 32768 > 32768 - 7
    folder = tmp_path / "wandb" / "offline-run-1-abc"
    folder.mkdir(parents=True)
    path = folder / "run-abc.wandb"
    path.write_bytes(data)
    assert wandb_files.last_step(tmp_path, "abc") == 39
    path.write_bytes(data[: at + 100])
    assert wandb_files.last_step(tmp_path, "abc") == 38
    assert wandb_files.last_step(tmp_path, "other") == 0
    wandb_files.mark_synced(tmp_path, "abc")
    assert [found.name for found in folder.glob("*.synced")] == ["run-abc.wandb.synced"]


def _append(data: bytearray, record: bytes) -> int:
    """Append a record as LevelDB's log has it, and return where it begins."""
    begins, is_first = len(data), True
    while is_first or record:
        left = 32768 - len(data) % 32768
        if left < 7:
            data += bytes(left)
            continue
        piece, record = record[: left - 7], record[left - 7 :]
        kind = {(1, 1): 1, (1, 0): 2, (0, 0): 3, (0, 1): 4}[int(is_first), int(not record)]
        data += bytes(4) + len(piece).to_bytes(2, "little") + bytes([kind]) + piece
        is_first = False
    return begins
