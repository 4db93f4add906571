"""What comes of a retraining that fails, dies or is forgotten: no label moves, and the drift is not lost."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from ludus.active.stream import retrainer
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.link import DirectLink
from ludus.active.stream.wire import Message
from ludus.active.trainers.active import ActiveTrainer
from ludus.config.base import from_data
from ludus.core.errors import CheckpointError, LudusError
from tests.active.stream.streams import (
    INTRODUCTION,
    SAMPLES,
    center,
    edge,
    estimation,
    hello,
    lines,
    retraining,
    say,
    until,
)

pytestmark = pytest.mark.usefixtures("warm_children")

BY_FEATURES = {
    "estimators": [{"kind": "ks", "alpha": 0.001}], "after_windows": 1, "max_consecutive": 9,
}  # fmt: skip
# Five digits, then the other five, in the middle of the stream.
MOVED = {
    "kind": "hard_switch", "period": 4,
    "distributions": [[1.0] * 5 + [0.0] * 5, [0.0] * 5 + [1.0] * 5],
}  # fmt: skip


QUICK = {**retraining()["training"], "max_epochs": 2, "max_rounds": 1}


def asked(one: Datacenter, samples: dict[str, Tensor]) -> None:
    say(one, "prep_retraining", {"update": 1}, samples)
    assert say(one, "retraining", {"update": 1})["status"] == "running"
    one.tend()


@pytest.mark.covers("003-S7")
def test_other_samples_after_a_retraining_that_died_have_their_own_labels(tmp_path: Path) -> None:
    training = {**QUICK, "max_epochs": 400}
    one = center(tmp_path, training=training)
    hello(one)
    asked(one, SAMPLES)
    runs = tmp_path / "datacenter/runs"
    until(lambda: any(runs.glob("*/checkpoints/*/manifest.json")), one)
    assert one._child is not None
    os.kill(one._child.pid, signal.SIGKILL)
    until(lambda: not one.is_busy, one)
    assert say(one, "retraining", {"update": 1})["status"] == "failed"
    # The same number of other samples; a datacenter that is restarted at any point knows of the failure.
    other = {"inputs": SAMPLES["inputs"], "targets": (SAMPLES["targets"] + 3) % 10}
    for _ in range(2):
        one = center(tmp_path, training=QUICK)
        say(one, "prep_retraining", {"update": 1}, other)
    one = center(tmp_path, training=QUICK)
    assert say(one, "retraining", {"update": 1})["status"] == "running"
    until(lambda: not one.is_busy, one)
    assert say(one, "retraining", {"update": 1})["status"] == "done"
    journals = sorted(runs.glob("*/journals/labels.jsonl"), key=lambda path: path.stat().st_mtime)
    records = [json.loads(line)["record"] for line in journals[-1].read_text().splitlines()]
    found = {
        row: label
        for record in records
        for row, label in zip(record["rows"], record["labels"], strict=True)
    }
    assert len(found) == 40
    assert all(label == other["targets"][row] for row, label in found.items())


class Failing(DirectLink):
    """A link to a datacenter whose retrainings fail."""

    def __init__(self, one: Datacenter) -> None:
        super().__init__(one)
        self.one, self.asked = one, 0

    def ask(self, kind: str, header: Any, tensors: Any) -> Message:
        if kind == "prep_retraining":
            self.asked += 1
        if kind in ("prep_retraining", "retraining"):
            return Message(kind, {"status": "failed", "problem": "no memory"}, {})
        return super().ask(kind, header, tensors)


@pytest.mark.parametrize("host", ["edge", "datacenter"])
def test_a_drift_is_seen_on_after_a_retraining_that_failed(host: str, tmp_path: Path) -> None:
    told: list[str] = []
    at_edge, there = (BY_FEATURES, None) if host == "edge" else (None, BY_FEATURES)
    link = Failing(center(tmp_path, state_estimation=there))
    one = edge(
        tmp_path, link, told, shift=MOVED, state_estimation_host=host, state_estimation=at_edge,
        num_steps=8, samples_per_step=50, keep_samples=100,
    )  # fmt: skip
    with pytest.raises(LudusError, match="no retraining of this stream succeeded"):
        one.run()
    assert [line["retrain"] for line in lines(tmp_path)] == [False, False, True, True]
    assert link.asked == 2
    assert any("the retraining failed: no memory" in line for line in told)


@pytest.mark.parametrize("host", ["edge", "datacenter"])
def test_retrainings_that_fail_are_bounded_too(host: str, tmp_path: Path) -> None:
    watched = {**estimation(0.000001), "max_consecutive": 2}
    at_edge, there = (watched, None) if host == "edge" else (None, watched)
    link = Failing(center(tmp_path, state_estimation=there))
    one = edge(tmp_path, link, state_estimation_host=host, state_estimation=at_edge)
    with pytest.raises(LudusError, match="no retraining of this stream succeeded"):
        one.run()
    assert [line["retrain"] for line in lines(tmp_path)] == [True, True, False, False]
    assert link.asked == 2


class Forgetting(DirectLink):
    """A link to a datacenter whose folder is removed once it is to retrain."""

    def __init__(self, root: Path) -> None:
        super().__init__(center(root, training=QUICK))
        self.root, self.is_removed = root, False

    def ask(self, kind: str, header: Any, tensors: Any) -> Message:
        if kind == "retraining" and not self.is_removed:
            shutil.rmtree(self.root / "datacenter")
            self._datacenter, self.is_removed = center(self.root, training=QUICK), True
            super().ask("handshake", INTRODUCTION | {"life": header["life"]}, {})
        return super().ask(kind, header, tensors)


def test_an_edge_does_not_wait_for_a_retraining_that_nobody_knows_of(tmp_path: Path) -> None:
    told: list[str] = []
    one = edge(tmp_path, Forgetting(tmp_path), told, num_steps=4)
    # Should it wait for ever, it is told to end, and the line below is not there.
    timer = threading.Timer(120, one.is_over.set)
    timer.start()
    one.run()
    timer.cancel()
    assert sum("has forgotten the retraining, it is 'idle'" in line for line in told) == 1
    # It asks again at the next check, and this time it is retrained.
    assert [line["retrain"] for line in lines(tmp_path)] == [True, True]
    assert one.update == 1


@pytest.mark.parametrize(
    "text", ["{}", "[]", "null", "{", '{"format": 2}', '{"format":2,"seal":""}']
)
def test_the_state_of_a_datacenter_that_was_edited_is_one_sentence(
    text: str, tmp_path: Path
) -> None:
    hello(center(tmp_path))
    (tmp_path / "datacenter/state.json").write_text(text)
    with pytest.raises(LudusError, match=r"state\.json"):
        center(tmp_path)


def test_weights_of_a_datacenter_that_are_gone_are_one_sentence(tmp_path: Path) -> None:
    one = center(tmp_path)
    one.model().save_model(one._kept(1))
    one._update, one._retrained = 1, {"model": 1}
    one._save()
    center(tmp_path)
    weights = tmp_path / "datacenter/models/update_1/weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"7")
    with pytest.raises(CheckpointError, match="update_1 has changed since it was saved"):
        center(tmp_path)
    shutil.rmtree(weights.parent)
    with pytest.raises(LudusError, match="update_1"):
        center(tmp_path)


def test_a_retraining_whose_end_was_not_noted_is_taken_up(tmp_path: Path) -> None:
    one = center(tmp_path, training=QUICK)
    hello(one)
    asked(one, SAMPLES)
    state = (tmp_path / "datacenter/state.json").read_bytes()
    tensors = {
        path.name: path.read_bytes()
        for path in (tmp_path / "datacenter").glob("state_*.safetensors")
    }
    until(lambda: not one.is_busy, one)
    before = (tmp_path / "datacenter/models/update_1/weights.safetensors").read_bytes()
    # As a kill leaves it between the end of the retraining and the note of it.
    (tmp_path / "datacenter/state.json").write_bytes(state)
    for name, data in tensors.items():
        (tmp_path / "datacenter" / name).write_bytes(data)
    again = center(tmp_path, training=QUICK)
    assert again.is_busy
    until(lambda: not again.is_busy, again)
    assert again._update == 1
    assert (tmp_path / "datacenter/models/update_1/weights.safetensors").read_bytes() == before


def test_a_retraining_that_was_interrupted_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = center(tmp_path, training=QUICK)
    say(one, "prep_retraining", {"update": 1}, SAMPLES)
    task = one._task(1)
    config = from_data(task.pop("config"), source="test")
    task["samples"] = Path(task["samples"])
    with monkeypatch.context() as patched:
        interrupt = lambda self: os.kill(os.getpid(), signal.SIGINT)  # noqa: E731
        patched.setattr(ActiveTrainer, "after_label", interrupt, raising=False)
        with pytest.raises(LudusError, match="the retraining was interrupted"):
            retrainer.retrain(config, **task)
    assert not Path(task["kept"]).exists()
    # What it had begun goes on.
    assert retrainer.retrain(config, **task) == "model"
    assert Path(task["kept"]).exists()
