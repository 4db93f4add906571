"""Edge and datacenter: what they ask and answer, in one process."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.active.stream.config import (
    EdgeConfig,
    RetrainingConfig,
    StandaloneConfig,
    StreamConfig,
    read_stream_config,
)
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.edge import Edge
from ludus.active.stream.link import DirectLink
from ludus.active.stream.wire import LinkLost, Message, WireError
from ludus.config.sections import validate
from ludus.core.errors import ConfigError, LudusError
from tests.active.stream.streams import SECRET, estimation, link, retraining, stream, write

SAMPLES = {
    "inputs": torch.randn(60, 1, 8, 8, generator=torch.Generator().manual_seed(0)),
    "targets": torch.arange(60) % 10,
}


def center(root: Path, told: list[str] | None = None, **changes: Any) -> Datacenter:
    config = validate(RetrainingConfig, retraining(**changes), source="test")
    return Datacenter(config, root=str(root), tell=[].append if told is None else told.append)


def edge(root: Path, given: Any, told: list[str] | None = None, **changes: Any) -> Edge:
    config = validate(StreamConfig, stream(**changes), source="test")
    return Edge(config, given, root=str(root), tell=[].append if told is None else told.append)


def lines(root: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (root / "edge" / "stream.jsonl").read_text().splitlines()]


def until(is_true: Callable[[], bool], one: Datacenter, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_true():
        assert time.monotonic() < deadline
        one.tend()
        time.sleep(0.02)


@pytest.mark.covers("003-S7")
@pytest.mark.parametrize("host", ["edge", "datacenter"])
def test_a_model_that_is_unsure_is_retrained_and_predicts_better(tmp_path: Path, host: str) -> None:
    told: list[str] = []
    at_edge = estimation() if host == "edge" else None
    one = center(tmp_path, told, state_estimation=None if at_edge else estimation())
    edge(
        tmp_path, DirectLink(one), told, state_estimation_host=host, state_estimation=at_edge
    ).run()
    found = lines(tmp_path)
    assert found[0]["retrain"]
    assert [line["update"] for line in found][:2] == [0, 1]
    assert found[1]["accuracy"] > found[0]["accuracy"] + 0.2
    assert any("update 1: model is retrained" in line for line in told)


@pytest.mark.covers("003-S7")
def test_a_datacenter_that_ends_in_the_middle_of_a_retraining_goes_on_exactly(
    tmp_path: Path,
) -> None:
    def begun(root: Path) -> Datacenter:
        one = center(root)
        one.answer(Message("prep_retraining", {"update": 1}, SAMPLES))
        assert one.answer(Message("retraining", {"update": 1}, {}))[0]["status"] == "running"
        one.tend()
        return one

    whole = begun(tmp_path / "whole")
    until(lambda: not whole.is_busy, whole)
    broken = begun(tmp_path / "broken")
    state = tmp_path / "broken/datacenter/runs/update_1/checkpoints"
    until(lambda: state.exists() and len(list(state.iterdir())) >= 2, broken)
    broken.close()
    told: list[str] = []
    resumed = center(tmp_path / "broken", told)
    assert "update 0, running" in told[0]
    until(lambda: not resumed.is_busy, resumed)
    one, other = (
        (tmp_path / name / "datacenter/models/update_1/weights.safetensors").read_bytes()
        for name in ("whole", "broken")
    )
    assert one == other


def test_what_was_asked_twice_is_done_once(tmp_path: Path) -> None:
    one = center(tmp_path, state_estimation=estimation(0.1))
    seen = {"log_probs": torch.zeros(4, 10).log_softmax(1), "targets": torch.arange(4)}
    first = one.answer(Message("check_state", {"window": 0}, seen))[0]
    assert one.answer(Message("check_state", {"window": 0}, seen))[0] == first
    assert one._trigger is not None
    assert one._trigger.num_windows == 1
    again = center(tmp_path, state_estimation=estimation(0.1))
    assert again.answer(Message("check_state", {"window": 0}, seen))[0] == first
    one.answer(Message("reset_state", {"is_retrained": True}, {}))
    assert one._trigger.num_retrainings == 1


def test_a_datacenter_whose_config_has_other_models_is_refused(tmp_path: Path) -> None:
    one = center(tmp_path)
    one.answer(Message("prep_retraining", {"update": 1}, SAMPLES))
    other = retraining()
    other["training"]["model"]["widths"] = [16]
    with pytest.raises(LudusError, match="was begun with other models"):
        center(tmp_path, training=other["training"])


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (Message("dance", {}, {}), "'dance' is unknown"),
        (Message("prep_retraining", {}, SAMPLES), "no update"),
        (Message("prep_retraining", {"update": True}, SAMPLES), "no update"),
        (Message("prep_retraining", {"update": 1}, {"inputs": torch.zeros(1)}), "without inputs"),
        (Message("check_state", {"window": 0}, {}), "the datacenter does none"),
    ],
)
def test_what_no_edge_would_say_is_a_sentence(tmp_path: Path, message: Message, told: str) -> None:
    with pytest.raises(WireError, match=told):
        center(tmp_path).answer(message)


def test_a_retraining_that_fails_leaves_the_model_and_says_why(tmp_path: Path) -> None:
    told: list[str] = []
    one = center(tmp_path, told)
    bad = {"inputs": SAMPLES["inputs"], "targets": SAMPLES["targets"] + 90}
    before = one.answer(Message("handshake", {"state_estimation_host": "edge"}, {}))[1]
    one.answer(Message("prep_retraining", {"update": 1}, bad))
    one.answer(Message("retraining", {"update": 1}, {}))
    until(lambda: not one.is_busy, one)
    found = one.answer(Message("retraining", {"update": 1}, {}))[0]
    assert found["status"] == "failed"
    assert "classes of this run are the whole numbers from 0 to 9" in found["problem"]
    after = one.answer(Message("handshake", {"state_estimation_host": "edge"}, {}))[1]
    assert all(before[name].equal(after[name]) for name in before)
    one.answer(Message("prep_retraining", {"update": 1}, SAMPLES))
    assert one.answer(Message("retraining", {"update": 1}, {}))[0]["status"] == "running"


class Lost:
    """A link that works until it is cut."""

    def __init__(self, link: Any, after: int) -> None:
        self.link, self.left = link, after

    def ask(self, kind: str, header: Any, tensors: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise LinkLost("the connection was closed by the other side")
        return self.link.ask(kind, header, tensors)

    def close(self) -> None: ...


def test_an_edge_whose_datacenter_is_gone_says_so_once_and_goes_on(tmp_path: Path) -> None:
    told: list[str] = []
    one = edge(tmp_path, Lost(DirectLink(center(tmp_path)), after=1), told)
    one.run()
    assert len(lines(tmp_path)) == 4
    gone = [line for line in told if "the datacenter is gone" in line]
    assert gone == [
        "the datacenter is gone: the connection was closed by the other side; going on with the model"
        " there is"
    ]


@pytest.mark.covers("003-D13")
def test_each_message_sends_other_samples_of_the_latest(tmp_path: Path) -> None:
    one = edge(tmp_path, DirectLink(center(tmp_path)), state_estimation=estimation(99.0))
    one.run()
    assert len(one.rows_N) == 100
    first, second = one.samples(0), one.samples(1)
    assert len(first.unique()) == 60
    assert set(first.tolist()) <= set(one.rows_N.tolist())
    assert first.tolist() == one.samples(0).tolist()
    assert sorted(first.tolist()) != sorted(second.tolist())


@pytest.mark.covers("003-D12")
def test_retraining_that_does_not_help_is_bounded(tmp_path: Path) -> None:
    told: list[str] = []
    hopeless = {**estimation(0.0001), "max_consecutive": 1}
    edge(tmp_path, DirectLink(center(tmp_path)), told, state_estimation=hopeless).run()
    assert [line["update"] for line in lines(tmp_path)] == [0, 1, 1, 1]
    assert any("have not helped" in line for line in told)


def test_both_sides_must_agree_on_who_estimates(tmp_path: Path) -> None:
    one = edge(
        tmp_path, DirectLink(center(tmp_path)), state_estimation_host="datacenter",
        state_estimation=None,
    )  # fmt: skip
    with pytest.raises(LudusError, match="make the two files agree"):
        one.run()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"state_estimation": None},
            "'state_estimation' is null, and 'state_estimation_host' edge",
        ),
        ({"send_samples": 101}, "'send_samples' is 101, and 100 are kept"),
        ({"check_every_steps": 6}, "120 come between two checks"),
    ],
)
def test_keys_of_a_stream_that_do_not_fit_are_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        validate(StreamConfig, stream(**changes), source="test")


def test_a_secret_is_long_enough_and_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(**changes: Any) -> EdgeConfig:
        data = {"kind": "edge", "link": {**link(9), **changes}, **stream()}
        found = read_stream_config(write(tmp_path / "edge.yaml", data))
        assert isinstance(found, EdgeConfig)
        return found

    with pytest.raises(ConfigError, match="give one of 'secret_file' and 'secret_variable'"):
        read(secret_variable=None)
    monkeypatch.setenv("STREAM_SECRET", "short")
    with pytest.raises(
        ConfigError, match="STREAM_SECRET holds a secret of 5 bytes; use 16 or more"
    ):
        read().link.secret()
    file = tmp_path / "secret"
    by_file = read(secret_variable=None, secret_file=str(file)).link
    with pytest.raises(ConfigError, match="No such file"):
        by_file.secret()
    file.write_text(SECRET + "\n")
    assert by_file.secret() == SECRET.encode()


@pytest.mark.parametrize("name", ["edge", "datacenter", "standalone"])
def test_the_shipped_files_are_complete(name: str) -> None:
    found = read_stream_config(Path(__file__).parents[3] / f"configs/stream/{name}.yaml")
    assert found.kind == name


def test_a_standalone_file_is_a_stream_and_a_retraining(tmp_path: Path) -> None:
    data = {"kind": "standalone", "edge": stream(), "datacenter": retraining()}
    found = read_stream_config(write(tmp_path / "one.yaml", data))
    assert isinstance(found, StandaloneConfig)
    with pytest.raises(ConfigError, match="a stream's is edge, datacenter or standalone"):
        read_stream_config(write(tmp_path / "two.yaml", {"kind": "other"}))
