"""Edge and datacenter as two real processes over loopback, and what happens when one is gone."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.active.stream.streams import (
    Forked,
    Process,
    free_port,
    retraining,
    standalone,
    whole,
    write,
)
from tests.faults.warm import WarmProcess


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Return what starts an edge or a datacenter; all are ended with the test."""
    port, begun = free_port(), []

    def begin(kind: str, *, secret: str | None = None, **changes: Any) -> Process:
        data = whole(kind, port, **changes)
        path = write(tmp_path / f"{data['name']}.yaml", data)
        one = Process(path, tmp_path / "runs", *([] if secret is None else [secret]))
        begun.append(one)
        return one

    begin.port = port  # type: ignore[attr-defined]
    yield begin
    for one in begun:
        if one.process.poll() is None:
            one.kill()


@pytest.fixture
def fork(tmp_path: Path, warm: WarmProcess) -> Iterator[Any]:
    """Return what forks an edge or a datacenter; all are ended with the test."""
    port, begun = free_port(), []

    def begin(kind: str, **changes: Any) -> Forked:
        data = whole(kind, port, **changes)
        path = write(tmp_path / f"{data['name']}.yaml", data)
        begun.append(Forked(warm, path, tmp_path / "runs"))
        return begun[-1]

    yield begin
    for one in begun:
        one.kill()


@pytest.mark.covers("003-S7", "003-D12")
def test_a_stream_is_retrained_by_another_process_and_both_end_in_order(
    fork: Any, tmp_path: Path
) -> None:
    center = fork("datacenter", ends_with_edge=True)
    center.wait_for("listening on")
    edge = fork("edge")
    assert edge.end() == 0, edge.text
    assert center.end() == 0, center.text
    assert "the model is model, update 1" in edge.text
    assert "ended in order" in center.text
    lines = (tmp_path / "runs/edge/stream.jsonl").read_text().splitlines()
    assert json.loads(lines[-1])["accuracy"] > json.loads(lines[0])["accuracy"] + 0.2


@pytest.mark.slow
def test_strangers_liars_and_a_killed_edge_do_not_end_a_datacenter(start: Any) -> None:
    center = start("datacenter")
    center.wait_for("listening on")
    with socket.create_connection(("127.0.0.1", start.port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
        center.wait_for("no greeting")
    liar = start("edge", name="liar", secret="another secret, long enough")
    assert liar.end() == 1
    assert liar.text.strip().endswith("the datacenter refused us: its secret is another one")
    assert "Traceback" not in liar.text
    center.wait_for("does not know the secret")
    edge = start("edge", num_steps=100_000, samples_per_step=1, check_every_steps=40)
    edge.wait_for("asking for retraining")
    edge.kill()
    center.wait_for("an edge is gone")
    after = start("edge", name="other")
    assert after.end() == 0, after.text
    center.process.send_signal(signal.SIGTERM)
    assert center.end() == 0
    assert "ended in order" in center.text
    assert "Traceback" not in center.text


@pytest.mark.slow
def test_an_edge_goes_on_without_its_datacenter_and_finds_it_again(start: Any) -> None:
    # Few enough for the first check, which has two samples.
    few = retraining()["training"] | {"initial_labels": 2, "queries": 2}
    center = start("datacenter", training=few)
    center.wait_for("listening on")
    # Always unsure, so that it asks at every check; the first retraining is cut short.
    never = {
        "estimators": [{"kind": "entropy", "threshold": 0.00001}],
        "after_windows": 1, "max_consecutive": 1,
    }  # fmt: skip
    edge = start("edge", num_steps=1300, samples_per_step=1, check_every_steps=2,
                 state_estimation=never)  # fmt: skip
    center.wait_for("update 1: retraining")
    center.kill()
    edge.wait_for("the datacenter is gone")
    again = start("datacenter", training=few)
    again.wait_for("going on from")
    code = edge.end(120)
    assert code == 0, edge.text
    assert "Traceback" not in edge.text


@pytest.mark.slow
@pytest.mark.covers("003-S7")
def test_an_edge_and_a_datacenter_that_are_killed_end_with_the_same_lines(
    start: Any, tmp_path: Path
) -> None:
    whole = Process(write(tmp_path / "stream.yaml", standalone()), tmp_path / "whole")
    assert whole.end() == 0, whole.text
    center = start("datacenter")
    center.wait_for("listening on")
    edge = start("edge")
    edge.wait_for("asking for retraining")
    edge.kill()
    again = start("edge")
    center.wait_for("update 1: retraining")
    center.kill()
    again.wait_for("waiting for it")
    start("datacenter").wait_for("going on from")
    assert again.end(120) == 0, again.text
    assert "the datacenter is back" in again.text
    one, other = (
        (tmp_path / name / "edge/stream.jsonl").read_bytes() for name in ("whole", "runs")
    )
    assert one == other


@pytest.mark.slow
def test_an_edge_that_is_told_to_end_ends_in_order_and_goes_on(start: Any, tmp_path: Path) -> None:
    center = start("datacenter")
    center.wait_for("listening on")
    edge = start("edge")
    edge.wait_for("asking for retraining")
    edge.process.send_signal(signal.SIGINT)
    assert edge.end() == 0, edge.text
    assert "ended in order at step 2; the same command goes on" in edge.text
    again = start("edge")
    assert again.end() == 0, again.text
    assert "going on from" in again.text


def test_an_edge_without_a_datacenter_is_one_sentence(fork: Any) -> None:
    edge = fork("edge")
    assert edge.end() == 1
    assert "nobody answers on 127.0.0.1" in edge.text
    assert "start the datacenter first" in edge.text
    assert "Traceback" not in edge.text


@pytest.mark.slow
def test_the_same_stream_is_the_same_line_for_line(tmp_path: Path) -> None:
    for name in ("one", "other"):
        one = Process(write(tmp_path / "stream.yaml", standalone()), tmp_path / name)
        assert one.end() == 0, one.text
    first, second = (
        (tmp_path / name / "edge/stream.jsonl").read_bytes() for name in ("one", "other")
    )
    assert first == second
