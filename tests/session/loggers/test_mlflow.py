"""Runs are shown in MLflow whole: no point twice, none lost, whatever happens to the run or the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.core.errors import ConfigError, LudusError
from ludus.session.loggers import mlflow as logger
from ludus.session.remote import sender
from ludus.store.local import LocalStorage
from ludus.store.note import read_note, write_note
from tests.faults.small_run import interrupt_after, small_config, train
from tests.session.loggers.tracking_server import Gate, TrackingServer

CANARY = "canary-of-the-token-9f3"


@pytest.fixture
def gate(server: TrackingServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    for name, value in logger._ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sender, "SECONDS_BETWEEN_SENDS", 0.0)
    monkeypatch.setattr(sender, "SECONDS_BETWEEN_TRIES", 0.05)
    found = Gate(server.port)
    yield found
    found.shut()


def section(uri: str | None, experiment: str, **changes: Any) -> dict[str, Any]:
    return {
        "kind": "mlflow", "tracking_uri": uri, "experiment": experiment, "tags": {},
        "best_model": False, "wait_seconds": 60.0, **changes,
    }  # fmt: skip


def logging_to(uri: str | None, experiment: str, **changes: Any) -> dict[str, Any]:
    return {"settings.loggers": [section(uri, experiment, **changes)]}


class Shown:
    """The only run of an experiment, as MLflow's own client reads it."""

    def __init__(self, server: TrackingServer, experiment: str) -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(f"http://127.0.0.1:{server.port}")
        found = self.client.get_experiment_by_name(experiment)
        assert found is not None
        (self.run,) = self.client.search_runs([found.experiment_id])
        self.id = self.run.info.run_id

    def points(self, metric: str) -> list[tuple[int, float]]:
        return [(one.step, one.value) for one in self.client.get_metric_history(self.id, metric)]

    def files(self, folder: str) -> list[str]:
        return sorted(one.path for one in self.client.list_artifacts(self.id, folder))


def logged(run: Path, metric: str) -> list[tuple[int, float]]:
    """Return the points of metrics.jsonl."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [(line["opt_steps"], line[metric]) for line in lines if metric in line]


def events(run: Path, *kinds: str) -> list[str]:
    lines = [json.loads(line) for line in (run / "events.jsonl").read_text().splitlines()]
    return [line["reason"] for line in lines if line["event"] in kinds]


def check_whole(shown: Shown, run: Path) -> None:
    """Check that every point of the log is shown once."""
    for metric in ("train/loss", "validation/epoch_loss", "test/accuracy"):
        assert shown.points(metric) == logged(run, metric), metric
    assert len(shown.points("train/loss")) > 3


@pytest.mark.covers("004-S4")
def test_a_run_is_shown_with_its_name_group_tags_config_metrics_files_and_best_model(
    server: TrackingServer, gate: Gate, tmp_path: Path
) -> None:
    class Films:
        def after_epoch(self, run: ludus.Run) -> None:
            run.record({"mine/odd name!": 2.0 + run.counters["epoch"]})
            run.log.text("note", "one line\ud800")
            run.log.image("last/frame", torch.zeros(4, 2, 2, dtype=torch.uint8))
            run.log.histogram("weights", torch.arange(4.0))

    changes = logging_to(gate.uri, "whole", tags={"team": "red"}, best_model=True)
    result = _with_group(tmp_path, Films(), changes)
    shown, run = Shown(server, "whole"), tmp_path / "first"
    assert (shown.run.info.run_name, shown.run.info.status) == ("first", "FINISHED")
    tags = shown.run.data.tags
    assert (tags["team"], tags["ludus.group"], tags["ludus.tags"]) == ("red", "band", "good, new")
    params = shown.run.data.params
    assert (params["optimizer.learning_rate"], params["learning_rate_schedule.kind"]) == (
        str(result.learning_rate),
        "cosine",
    )
    assert params["settings.loggers.0.experiment"] == "whole"
    check_whole(shown, run)
    # The name has signs that MLflow refuses.
    assert shown.points("mine/odd name_") == logged(run, "mine/odd name!")
    assert [step for step, _ in shown.points("epoch")] == [step for step, _ in logged(run, "epoch")]
    best = json.loads((run / "models/best/model.json").read_text())
    last = logged(run, "test/accuracy")[-1][0]
    assert shown.points("best_score") == [(last, best["score"])]
    names = ["best_model/model.json", "best_model/weights.safetensors"]
    assert shown.files("best_model") == names
    steps = [step for step, _ in logged(run, "mine/odd name!")]
    assert shown.files("images/last/frame") == sorted(
        f"images/last/frame/{step}.png" for step in steps
    )
    assert shown.files("texts/note") == sorted(f"texts/note/{step}.txt" for step in steps)


def _with_group(root: Path, callback: object, changes: dict[str, Any]) -> Any:
    """Train a run that was given a group and tags before it was interrupted."""
    train(root, "first", each_epoch=interrupt_after(1))
    storage = LocalStorage(root / "first")
    write_note(storage, {**read_note(storage), "group": "band"})
    storage.write("tags.json", b'{"tags": ["good", "new"]}')
    for name in ("metrics.jsonl", "checkpoints"):
        assert storage.exists(name)
    trainer = ludus.Trainer(small_config(**changes))
    trainer.add(callback)
    trainer.fit(root=str(root), name="first", resume="approximate")
    return trainer.config.optimizer


def test_a_run_that_was_killed_is_one_curve_under_one_id(
    server: TrackingServer, gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changes = logging_to(gate.uri, "killed")
    often = {**changes, "settings.checkpoint.every_stages": 4}
    train(tmp_path, "run", each_epoch=interrupt_after(1), **often)
    first = Shown(server, "killed")
    assert (first.run.info.status, len(first.points("train/loss"))) == ("KILLED", 2)
    rarely = {**changes, "settings.checkpoint.every_stages": 1000}
    # What comes after the checkpoint is sent, and then the process is gone without a word to MLflow.
    with monkeypatch.context() as patch:
        patch.setattr(logger.MlflowRun, "finish", lambda run, end: None)
        with pytest.raises(ZeroDivisionError):
            train(tmp_path, "run", each_epoch=lambda trainer: 1 // (1 - trainer.epoch), **rarely)
    lines = first.points("ludus.lines")
    num_saved = len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    train(tmp_path, "run", **{**rarely, "settings.checkpoint.keep_last": 5})
    shown = Shown(server, "killed")
    assert shown.id == first.id
    assert len(lines) == num_saved > 2
    assert shown.files("best_model") == []
    check_whole(shown, tmp_path / "run")
    numbers = [value for _, value in shown.points("ludus.lines")]
    assert numbers == list(range(1, len(numbers) + 1))
    # A parameter is never changed; the new value is a tag.
    name = "settings.checkpoint.keep_last"
    assert shown.run.data.params[name] == "3"
    assert shown.run.data.tags[f"resumed.{name}"] == "5"


def test_a_server_that_dies_stops_nothing_and_gets_the_rest_when_it_is_back(
    server: TrackingServer, gate: Gate, tmp_path: Path
) -> None:
    def at_epoch(trainer: ludus.Trainer) -> None:
        if trainer.epoch == 0:
            gate.shut()
        if trainer.epoch == 1:
            gate.open()

    result = train(tmp_path, "run", each_epoch=at_epoch, **logging_to(gate.uri, "died"))
    assert result.status == "finished"
    check_whole(Shown(server, "died"), tmp_path / "run")


def test_what_a_dead_server_did_not_get_is_sent_by_the_next_resume(
    server: TrackingServer, gate: Gate, tmp_path: Path
) -> None:
    changes = logging_to(gate.uri, "dead", best_model=True)

    def at_epoch(trainer: ludus.Trainer) -> None:
        if trainer.epoch == 1:
            gate.shut()

    result = train(tmp_path, "run", each_epoch=at_epoch, **changes)
    assert result.status == "finished"
    told = events(tmp_path / "run", "logger_unreachable")
    assert told[-1] == (
        f"MLflow at {gate.uri} does not answer (no connection); `ludus resume {tmp_path / 'run'}`"
        " sends the rest"
    )
    assert len(told) <= 2
    before = (tmp_path / "run" / "metrics.jsonl").read_bytes()
    gate.open()
    for _ in range(2):
        train(tmp_path, "run", **changes)
    shown = Shown(server, "dead")
    check_whole(shown, tmp_path / "run")
    assert shown.files("best_model")
    assert len(shown.points("best_score")) == 1
    assert (tmp_path / "run" / "metrics.jsonl").read_bytes() == before


def test_an_end_does_not_wait_for_a_server_that_accepts_and_is_silent(
    gate: Gate, tmp_path: Path
) -> None:
    gate.shut()
    import socket

    with socket.socket() as silent:
        silent.bind(("127.0.0.1", gate.port))
        silent.listen()
        changes = logging_to(gate.uri, "silent", wait_seconds=0.01)
        assert train(tmp_path, "run", **changes).status == "finished"
    told = events(tmp_path / "run", "logger_unreachable")
    assert told == [
        f"MLflow at {gate.uri} has not taken everything in 0.01 s; `ludus resume {tmp_path / 'run'}`"
        " sends the rest"
    ]


def test_a_token_is_in_no_file_and_no_message(
    gate: Gate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "somebody")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", CANARY)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"http://user:{CANARY}@127.0.0.1:{gate.port}")
    changes = {**logging_to(None, "secret"), "settings.display": "plain"}
    train(tmp_path, "run", each_epoch=lambda trainer: gate.shut(), **changes)
    output = capsys.readouterr()
    assert f"MLflow at http://127.0.0.1:{gate.port} does not answer" in output.out
    assert CANARY not in output.out + output.err
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or CANARY.encode() not in path.read_bytes(), path


def test_a_deleted_experiment_is_refused_before_work(
    server: TrackingServer, gate: Gate, tmp_path: Path
) -> None:
    train(tmp_path, "one", **logging_to(gate.uri, "gone"), max_epochs=1)
    shown = Shown(server, "gone")
    shown.client.delete_experiment(shown.run.info.experiment_id)
    with pytest.raises(LudusError, match="the experiment 'gone' was deleted in MLflow at"):
        train(tmp_path, "two", **logging_to(gate.uri, "gone"))
    assert logged(tmp_path / "two", "train/loss") == []


def test_a_wrong_path_of_the_server_is_refused_in_one_line(gate: Gate, tmp_path: Path) -> None:
    with pytest.raises(LudusError, match=r"refuses the run \(ENDPOINT_NOT_FOUND\)") as refused:
        train(tmp_path, "run", **logging_to(f"{gate.uri}/elsewhere", "path"))
    assert "\n" not in str(refused.value)
    assert "html" not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"tracking_uri": "127.0.0.1:5000"},
            "tracking_uri is '127.0.0.1:5000', which is no address",
        ),
        ({"tracking_uri": "http://[::1"}, r"'http://\[::1', which is no address of a server"),
        ({"tracking_uri": "http://"}, "'http://', which is no address of a server"),
        ({"tracking_uri": "http://host:99999"}, "'http://host:99999', which is no address"),
        ({"tracking_uri": f"http://me:{CANARY}@host"}, "tracking_uri holds a password"),
        ({"experiment": " "}, "experiment is empty"),
        ({"wait_seconds": 0.0}, "wait_seconds"),
        ({"tags": {"a": 1}}, "tags"),
        ({"best_model": "yes"}, "best_model"),
    ],
)
def test_a_wrong_key_is_one_sentence_before_work(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence) as refused:
        small_config(**{"settings.loggers": [section("http://127.0.0.1:1", "e") | changes]})
    assert CANARY not in str(refused.value)


def test_without_an_address_or_the_library_a_run_does_not_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with pytest.raises(
        ConfigError, match="the logger 'mlflow' has no server: set its tracking_uri"
    ):
        train(tmp_path, "run", **logging_to(None, "e"))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(
        ConfigError, match=r"needs mlflow; install it with: pip install 'ludus\[mlflow\]'"
    ):
        train(tmp_path, "run", **logging_to("http://127.0.0.1:1", "e"))
    assert list(tmp_path.iterdir()) == []


def test_the_trial_runs_of_verify_are_sent_nowhere() -> None:
    from ludus.testing.verify import _logged_here

    sections = [section("http://127.0.0.1:1", "e"), {"kind": "csv"}]
    checked = _logged_here(small_config(**{"settings.loggers": sections}))
    assert [one.kind for one in checked.settings.loggers] == ["csv"]
