"""Edge and datacenter: what they ask and answer, in one process."""

from pathlib import Path
from typing import Any

import pytest
import torch

from ludus.active.stream.config import StreamConfig
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.link import DirectLink
from ludus.active.stream.wire import LinkLost, Message, WireError
from ludus.config.sections import validate
from ludus.core.errors import ConfigError, LudusError
from tests.active.stream.streams import (
    INTRODUCTION,
    SAMPLES,
    WHO,
    Recorder,
    center,
    edge,
    estimation,
    hello,
    lines,
    retraining,
    say,
    stream,
    until,
)

pytestmark = pytest.mark.usefixtures("warm_children")


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
        say(one, "prep_retraining", {"update": 1}, SAMPLES)
        assert say(one, "retraining", {"update": 1})["status"] == "running"
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
    hello(one, host="datacenter")
    seen = {"log_probs": torch.zeros(4, 10).log_softmax(1), "targets": torch.arange(4)}
    first = say(one, "check_state", {"window": 0}, seen)
    assert say(one, "check_state", {"window": 0}, seen) == first
    trigger = one._edges["edge"].trigger
    assert trigger is not None
    assert trigger.num_windows == 1
    again = center(tmp_path, state_estimation=estimation(0.1))
    assert say(again, "check_state", {"window": 0}, seen) == first
    for _ in range(2):
        say(one, "reset_state", {"reset": 0, "is_retrained": True})
    assert trigger.num_retrainings == 1
    say(one, "reset_state", {"reset": 1, "is_retrained": True})
    assert trigger.num_retrainings == 2


def test_a_datacenter_whose_config_has_other_models_is_refused(tmp_path: Path) -> None:
    one = center(tmp_path)
    say(one, "prep_retraining", {"update": 1}, SAMPLES)
    other = retraining()
    other["training"]["model"]["widths"] = [16]
    with pytest.raises(LudusError, match="was begun with other models"):
        center(tmp_path, training=other["training"])


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (Message("dance", {}, {}), "'dance' is unknown"),
        (Message("handshake", {**INTRODUCTION, "edge": None}, {}), "no edge"),
        (Message("handshake", {**INTRODUCTION, "life": 3}, {}), "no life"),
        (Message("prep_retraining", WHO, SAMPLES), "no update"),
        (Message("prep_retraining", {**WHO, "update": True}, SAMPLES), "no update"),
        (Message("prep_retraining", {**WHO, "update": -1}, SAMPLES), "no update"),
        (Message("prep_retraining", {**WHO, "update": 1}, {"inputs": torch.zeros(1)}), "without inputs"),
        (
            Message("prep_retraining", {**WHO, "update": 1},
                    {"inputs": torch.zeros(2, 3), "targets": torch.zeros(3)}),
            "without a target for each",
        ),
        (Message("check_state", {**WHO, "window": 0}, {}), "the datacenter does none"),
        (Message("reset_state", WHO, {}), "no reset"),
        (Message("reset_state", {**WHO, "reset": 0}, {}), "no is_retrained"),
    ],
)  # fmt: skip
def test_what_no_edge_would_say_is_a_sentence(tmp_path: Path, message: Message, told: str) -> None:
    one = center(tmp_path)
    hello(one)
    with pytest.raises(WireError, match=told):
        one.answer(message)


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"log_probs": torch.zeros(4)},
        {"log_probs": torch.zeros(4, 10, dtype=torch.int64)},
        {"log_probs": torch.zeros(4, 10, dtype=torch.complex64)},
        {"log_probs": torch.zeros(4, 10), "targets": torch.zeros(4)},
        {"log_probs": torch.zeros(4, 10), "targets": torch.zeros(3, dtype=torch.int64)},
        {"log_probs": torch.zeros(4, 10), "features": torch.zeros(4)},
        {"log_probs": torch.zeros(4, 10), "features": torch.zeros(5, 2)},
    ],
)
def test_a_window_that_is_none_is_not_measured(tmp_path: Path, tensors: Any) -> None:
    one = center(tmp_path, state_estimation=estimation(0.1))
    hello(one, host="datacenter")
    with pytest.raises(WireError, match="nothing was measured"):
        say(one, "check_state", {"window": 0}, tensors)
    trigger = one._edges["edge"].trigger
    assert trigger is not None
    assert trigger.num_windows == 0


def test_a_retraining_that_fails_leaves_the_model_and_says_why(tmp_path: Path) -> None:
    told: list[str] = []
    one = center(tmp_path, told)
    bad = {"inputs": SAMPLES["inputs"], "targets": SAMPLES["targets"] + 90}
    before = hello(one)[1]
    say(one, "prep_retraining", {"update": 1}, bad)
    say(one, "retraining", {"update": 1})
    until(lambda: not one.is_busy, one)
    found = say(one, "retraining", {"update": 1})
    assert found["status"] == "failed"
    assert "classes of this run are the whole numbers from 0 to 9" in found["problem"]
    after = hello(one)[1]
    assert all(before[name].equal(after[name]) for name in before)
    # Good samples after bad ones are a run of their own, not the rest of the one that failed.
    assert one._task(1)["run"] == "update_1"
    say(one, "prep_retraining", {"update": 1}, SAMPLES)
    assert one._task(1)["run"] == "update_1_1"
    assert say(one, "retraining", {"update": 1})["status"] == "running"
    until(lambda: not one.is_busy, one)
    assert say(one, "retraining", {"update": 1})["status"] == "done"


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
    cut = Lost(DirectLink(center(tmp_path)), after=1)
    edge(tmp_path, cut, told, wait_for_update=False).run()
    assert len(lines(tmp_path)) == 4
    gone = [line for line in told if "the datacenter is gone" in line]
    assert gone == [
        "the datacenter is gone: the connection was closed by the other side; going on with the model"
        " there is"
    ]


class Flaky(Recorder):
    """A datacenter that is gone for some questions, and then back."""

    num_asked = 0

    def ask(self, kind: str, header: Any, tensors: Any) -> Message:
        self.num_asked += 1
        if 3 <= self.num_asked <= 5:
            raise LinkLost("the connection was closed by the other side")
        return super().ask(kind, header, tensors)


def test_an_edge_that_waits_for_updates_waits_for_a_datacenter_that_is_gone(tmp_path: Path) -> None:
    told: list[str] = []
    watched = {"state_estimation": estimation(0.000001)}
    edge(tmp_path / "whole", Recorder(tmp_path / "whole"), **watched).run()
    edge(tmp_path / "cut", Flaky(tmp_path / "cut"), told, **watched).run()
    assert lines(tmp_path / "cut") == lines(tmp_path / "whole")
    gone = [line for line in told if "waiting for it" in line or "is back" in line]
    assert [line.split(":")[0] for line in gone] == [
        "the datacenter is gone", "the datacenter is back"
    ]  # fmt: skip
    # One that does not wait goes on without, and its lines are others.
    edge(tmp_path / "on", Flaky(tmp_path / "on"), wait_for_update=False, **watched).run()
    assert lines(tmp_path / "on") != lines(tmp_path / "whole")


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
