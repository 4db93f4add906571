"""Mistakes in a datacenter's training are told before the stream begins, and failures at its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.active.stream.link import DirectLink
from ludus.active.stream.wire import Message
from ludus.core.errors import ConfigError, LudusError
from tests.active.stream.streams import (
    SECRET,
    center,
    edge,
    estimation,
    hello,
    lines,
    retraining,
    standalone,
    whole,
    write,
)
from tests.active.stream.test_failed import Failing
from tests.command_line import Ludus, in_process

WRONG = [
    ({"settings": {"device": "cuda:77"}}, "settings.device is 'cuda:77'"),
    ({"model": {"inputs": 65}}, "the model cannot learn from this data"),
    ({"model": {"outputs": 5}}, "classes of this run are the whole numbers from 0 to 4"),
    ({"features_layer": "nothing"}, "'features_layer' is nothing, and neither"),
    ({"engine": "graph"}, "'engine' is graph"),
    ({"queries": 61}, "'queries' is 61, and the edge sends 60 samples; lower it"),
    ({"initial_labels": 80}, "'initial_labels' is 80, and the edge sends 60 samples"),
]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    monkeypatch.setenv("STREAM_SECRET", SECRET)
    return in_process(monkeypatch, capsys)


def training(changes: dict[str, Any]) -> dict[str, Any]:
    """Return a training in which keys, or keys of its sections, are others."""
    found: dict[str, Any] = retraining()["training"]
    for key, value in changes.items():
        found[key] = {**found[key], **value} if isinstance(value, dict) else value
    return found


@pytest.mark.parametrize(("changes", "told"), WRONG)
def test_a_mistake_in_the_training_is_told_before_the_stream_begins(
    changes: dict[str, Any], told: str, tmp_path: Path, call: Ludus
) -> None:
    data = standalone(datacenter=retraining(training=training(changes)))
    path = write(tmp_path / "both.yaml", data)
    refusal = call("stream", str(path), "--root", str(tmp_path / "runs")).refusal()
    assert refusal.startswith("the datacenter's 'training': ")
    assert told in refusal
    assert not (tmp_path / "runs/edge/stream.jsonl").exists()
    assert not (tmp_path / "runs/datacenter/runs").exists()


@pytest.mark.parametrize(("changes", "told"), WRONG[:2])
def test_a_datacenter_of_its_own_does_not_listen_before_its_training_is_right(
    changes: dict[str, Any], told: str, tmp_path: Path, call: Ludus
) -> None:
    path = write(tmp_path / "center.yaml", whole("datacenter", 9, training=training(changes)))
    assert told in call("stream", str(path), "--root", str(tmp_path / "runs")).refusal()


def test_after_the_mistake_is_mended_the_same_command_begins(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot learn from this data"):
        center(tmp_path, training=training({"model": {"inputs": 65}})).check()
    one = center(tmp_path)
    one.check(num_samples=60)
    assert hello(one)[0]["update"] == 0


def test_an_edge_that_sends_too_few_samples_is_refused_when_it_comes(tmp_path: Path) -> None:
    one = edge(tmp_path, DirectLink(center(tmp_path)), send_samples=30)
    with pytest.raises(LudusError, match="'initial_labels' is 40, and the edge sends 30 samples"):
        one.run()


def test_a_stream_of_which_every_retraining_failed_does_not_end_well(tmp_path: Path) -> None:
    watched = {"state_estimation": estimation(0.000001)}
    reason = r"no retraining of this stream succeeded; the last one failed: no memory; mend"
    with pytest.raises(LudusError, match=reason):
        edge(tmp_path, Failing(center(tmp_path)), **watched).run()
    assert len(lines(tmp_path)) == 4
    # Asked again, it has not forgotten.
    with pytest.raises(LudusError, match=reason):
        edge(tmp_path, Failing(center(tmp_path)), **watched).run()


class FailsOnce(Failing):
    """A link to a datacenter whose first retraining fails."""

    def ask(self, kind: str, header: Any, tensors: Any) -> Message:
        if kind == "retraining" and self.asked > 1:
            found, weights = self.one._updated()
            return Message(kind, {**found, "update": header["update"]}, weights)
        return super().ask(kind, header, tensors)


def test_one_retraining_that_succeeded_is_enough(tmp_path: Path) -> None:
    link = FailsOnce(center(tmp_path))
    edge(tmp_path, link, state_estimation=estimation(0.000001)).run()
    assert link.asked > 1


def test_a_datacenter_knows_whether_all_of_its_retrainings_failed(tmp_path: Path) -> None:
    one = center(tmp_path)
    assert one.failure is None
    one._status, one._problem = "failed", "no memory"
    assert one.failure == "no memory"
    one._update = 1
    assert one.failure is None
