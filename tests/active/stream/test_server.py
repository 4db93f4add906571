"""A datacenter among several edges, strangers and peers that misbehave; and the model that it chooses."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from ludus.active.stream import wire
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.wire import LinkLost, WireConnection
from ludus.config.registry import find
from ludus.core.errors import LudusError
from ludus.nn.model import Model
from ludus.seeds import generator
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from tests.active.stream.streams import (
    INTRODUCTION,
    SAMPLES,
    SECRET,
    WHO,
    center,
    edge,
    estimation,
    hello,
    lines,
    retraining,
    say,
    serving,
    stream,
    until,
)

pytestmark = pytest.mark.usefixtures("warm_children")


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STREAM_SECRET", SECRET)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a retraining be done at once, into the same weights."""

    def tend(self: Datacenter) -> None:
        if self.is_busy:
            self._update, self._status = self._update + 1, "idle"
            self._save()

    monkeypatch.setattr(Datacenter, "tend", tend)


def soon(is_true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + 120
    while not is_true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return is_true()


def raw(server: Any) -> tuple[socket.socket, WireConnection]:
    """Return a connection of a peer that knows the secret, and its socket."""
    end = socket.create_connection(("127.0.0.1", server._link.port))
    return end, WireConnection(
        end, role="edge", secret=SECRET.encode(), max_bytes=10_000_000, timeout=60.0
    )


@pytest.mark.covers("003-S7")
@pytest.mark.parametrize("host", ["edge", "datacenter"])
def test_two_edges_are_watched_apart_and_have_one_model(
    host: str, quick: None, tmp_path: Path
) -> None:
    told: list[str] = []
    watched = {**estimation(0.000001), "max_consecutive": 1}
    at_edge, there = (watched, None) if host == "edge" else (None, watched)
    one = center(tmp_path, told, state_estimation=there)
    with serving(tmp_path, told, center=one, ends_with_edge=True) as (server, reach):
        given = {"state_estimation_host": host, "state_estimation": at_edge}
        edges = [edge(tmp_path, reach(), name=name, **given) for name in ("left", "right")]
        threads = [threading.Thread(target=each.run) for each in edges]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert soon(server.is_over.is_set)
    for each, name in zip(edges, ("left", "right"), strict=True):
        # One retraining each, and then no more: the other's does not count.
        assert [line["retrain"] for line in lines(tmp_path, name)] == [True, False, False, False]
        assert each.update in (1, 2)
    assert one._update in (1, 2)
    if host == "datacenter":
        triggers = [one._edges[name].trigger for name in ("left", "right")]
        assert [each and each.num_windows for each in triggers] == [4, 4]


def test_who_asks_first_is_trained_for_and_the_other_gets_the_same_model(
    quick: None, tmp_path: Path
) -> None:
    one = center(tmp_path)
    for name in ("left", "right"):
        hello(one, name)
    others = {"inputs": SAMPLES["inputs"] + 1, "targets": SAMPLES["targets"]}
    say(one, "prep_retraining", {"update": 1}, SAMPLES, edge="left")
    assert say(one, "prep_retraining", {"update": 1}, others, edge="right")["status"] == "prepared"
    kept = (tmp_path / "datacenter/samples_1.safetensors").read_bytes()
    assert wire._tensors(kept)["inputs"].equal(SAMPLES["inputs"])
    # The one that asked may vanish now: the other's question sets the training off.
    assert say(one, "retraining", {"update": 1}, edge="right")["status"] == "running"
    one.tend()
    for name in ("left", "right"):
        found = say(one, "retraining", {"update": 1}, edge=name)
        assert (found["status"], found["update"]) == ("done", 1)


def test_an_edge_that_is_behind_gets_the_latest_model(quick: None, tmp_path: Path) -> None:
    one = center(tmp_path)
    hello(one)
    for number in (1, 2):
        say(one, "prep_retraining", {"update": number}, SAMPLES)
        say(one, "retraining", {"update": number})
        one.tend()
    hello(one, "late")
    assert say(one, "prep_retraining", {"update": 1}, SAMPLES, edge="late")["status"] == "idle"
    assert say(one, "retraining", {"update": 1}, edge="late")["update"] == 2


def test_two_edges_of_one_name_are_told_apart(tmp_path: Path) -> None:
    one = center(tmp_path, state_estimation=estimation(0.1))
    seen = {"log_probs": torch.zeros(4, 10).log_softmax(1)}
    hello(one, host="datacenter", life="first")
    assert say(one, "check_state", {"window": 0}, seen, life="first")["retrain"]
    hello(one, host="datacenter", life="second")
    with pytest.raises(LudusError, match="another edge has come that is named 'edge' too"):
        say(one, "check_state", {"window": 1}, seen, life="first")
    # One that begins anew under the name is watched anew.
    assert one._edges["edge"].trigger is not None
    assert one._edges["edge"].trigger.num_windows == 0


def test_what_is_known_of_edges_is_bounded(tmp_path: Path) -> None:
    one = center(tmp_path)
    for number in range(70):
        hello(one, f"edge-{number}")
    assert next(iter(one._edges)) == "edge-6"
    assert len(one._edges) == 64


@pytest.mark.parametrize("kind", ["handshake", "normal", "retraining", "check_state"])
def test_an_edge_that_still_talks_is_not_forgotten_for_those_that_come(
    kind: str, tmp_path: Path
) -> None:
    one = center(tmp_path, state_estimation=estimation(0.1))
    seen = {"log_probs": torch.zeros(4, 10).log_softmax(1)}
    hello(one, "first", host="datacenter")
    hello(one, "quiet", host="datacenter")
    say(one, "check_state", {"window": 0}, seen, edge="first")
    for number in range(100):
        hello(one, f"edge-{number}", host="datacenter")
        who = {**INTRODUCTION, "edge": "first", "state_estimation_host": "datacenter"}
        say(one, kind, {**who, "window": 0, "update": 1}, seen)
    assert list(one._edges)[-1] == "first"
    trigger = one._edges["first"].trigger
    assert trigger is not None
    assert trigger.num_windows == 1
    with pytest.raises(LudusError, match="so many others have spoken since 'quiet' did; start it"):
        say(one, "check_state", {"window": 0}, seen, edge="quiet")
    # Who has spoken last is known to a datacenter that is started again.
    say(one, "check_state", {"window": 1}, seen, edge="edge-60")
    again = center(tmp_path, state_estimation=estimation(0.1))
    assert list(again._edges)[-1] == "edge-60"


def test_another_of_the_same_name_does_not_keep_an_edge_known(tmp_path: Path) -> None:
    one = center(tmp_path)
    for number in range(2):
        hello(one, f"edge-{number}")
    say(one, "normal", {}, edge="edge-0", life="another")
    assert list(one._edges) == ["edge-0", "edge-1"]


def test_an_edge_that_vanishes_in_the_middle_of_a_message_is_one_line(tmp_path: Path) -> None:
    told: list[str] = []
    with serving(tmp_path, told) as (server, reach):
        end, _ = raw(server)
        end.sendall(struct.pack(">IQ", 50, 1000) + b'{"kind": "prep_retraining"')
        end.close()
        assert soon(lambda: any("closed in the middle of a message" in line for line in told))
        assert reach().ask("handshake", INTRODUCTION, {}).header["update"] == 0
    assert not (tmp_path / "datacenter/samples_1.safetensors").exists()


def test_an_edge_that_was_cut_off_is_known_when_it_comes_again(tmp_path: Path) -> None:
    told: list[str] = []
    one = center(tmp_path, told, state_estimation=estimation(0.1))
    seen = {"log_probs": torch.zeros(4, 10).log_softmax(1)}
    with serving(tmp_path, told, center=one) as (_, reach):
        first = reach()
        first.ask("handshake", {**INTRODUCTION, "state_estimation_host": "datacenter"}, {})
        before = first.ask("check_state", {**WHO, "window": 0}, seen).header
        first.close()
        again = reach()
        again.ask("handshake", {**INTRODUCTION, "state_estimation_host": "datacenter"}, {})
        assert again.ask("check_state", {**WHO, "window": 0}, seen).header == before
        trigger = one._edges["edge"].trigger
        assert trigger is not None
        assert trigger.num_windows == 1


@pytest.mark.covers("003-D12")
@pytest.mark.parametrize("payload", [b"\x80\x04K\x01.", b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 200])
def test_nothing_is_parsed_before_its_proof_is_checked(
    payload: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    with serving(tmp_path, told) as (server, reach):
        end, _ = raw(server)
        with end:
            parsed: list[bytes] = []
            for name in ("_parsed", "_tensors", "load", "parse_json"):
                monkeypatch.setattr(wire, name, lambda data, **more: parsed.append(data))
            lengths = struct.pack(">IQ", len(payload), len(payload))
            end.sendall(lengths + payload + payload + b"\x00" * 32)
            assert soon(lambda: any("dropped unread" in line for line in told))
            assert parsed == []
            monkeypatch.undo()
        monkeypatch.setenv("STREAM_SECRET", SECRET)
        assert reach().ask("handshake", INTRODUCTION, {}).header["update"] == 0


def test_what_no_edge_would_say_ends_that_connection_and_no_other(tmp_path: Path) -> None:
    told: list[str] = []
    with serving(tmp_path, told) as (server, reach):
        good = reach()
        good.ask("handshake", INTRODUCTION, {})
        end, odd = raw(server)
        with end:
            odd.send("dance", {})
            with pytest.raises(LinkLost):
                odd.receive()
        assert soon(lambda: any("'dance' is unknown" in line for line in told))
        assert good.ask("normal", WHO, {}).header == {"status": "idle"}


def test_a_ninth_edge_is_turned_away_and_one_that_leaves_makes_room(tmp_path: Path) -> None:
    told: list[str] = []
    with serving(tmp_path, told) as (_, reach):
        links = [reach() for _ in range(8)]
        for one in links:
            one.ask("normal", WHO, {})
        with pytest.raises(LinkLost):
            reach().ask("normal", WHO, {})
        assert soon(lambda: any("one more was turned away" in line for line in told))
        links[0].close()
        assert soon(lambda: any("an edge is gone" in line for line in told))
        time.sleep(0.05)
        assert reach().ask("normal", WHO, {}).header == {"status": "idle"}


class Reordering:
    """A socket that holds back what it is told to."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self.held, self.holds = end, list[bytes](), False

    def sendall(self, data: bytes) -> None:
        if self.holds:
            self.held.append(data)
        else:
            self.end.sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.end, name)


def test_messages_in_another_order_are_dropped(tmp_path: Path) -> None:
    told: list[str] = []
    with serving(tmp_path, told) as (server, _):
        end: Any = Reordering(socket.create_connection(("127.0.0.1", server._link.port)))
        with end.end:
            one = WireConnection(
                end, role="edge", secret=SECRET.encode(), max_bytes=10_000, timeout=60.0
            )
            end.holds = True
            one.send("normal", {**WHO, "step": 1})
            one.send("normal", {**WHO, "step": 2})
            for data in reversed(end.held):
                end.end.sendall(data)
            assert soon(lambda: any("no proof that it is the peer's" in line for line in told))


def trained_on_digits(section: dict[str, Any], steps: int) -> tuple[Model, Tensor, Tensor]:
    data = find("dataset", "digits")
    train = data(data.Config(**stream()["data"])).load(generator(0, "split")).train
    inputs, targets = train.tensors
    torch.manual_seed(0)
    model = Model(section, loss="cross_entropy")
    optimizer = torch.optim.Adam(model.module.parameters(), lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return model, inputs[:60], targets[:60]


@pytest.mark.covers("003-S7")
def test_the_datacenter_retrains_the_candidate_that_transfers_best(tmp_path: Path) -> None:
    section = retraining()["training"]["model"]
    _, inputs, targets = trained_on_digits(section, 0)
    for name, steps in (("poor", 0), ("good", 60)):
        trained_on_digits(section, steps)[0].save_model(tmp_path / name)
    training = retraining()["training"] | {
        "model": None, "selection": "leep", "max_rounds": 1, "max_epochs": 1,
        "candidates": [{"name": name, "model": section, "weights": str(tmp_path / name)}
                       for name in ("poor", "good")],
    }  # fmt: skip
    told: list[str] = []
    one = center(tmp_path, told, training=training)
    assert hello(one)[0]["name"] == "poor"
    say(one, "prep_retraining", {"update": 1}, {"inputs": inputs, "targets": targets})
    say(one, "retraining", {"update": 1})
    until(lambda: not one.is_busy, one)
    header, weights = hello(one)
    assert (header["name"], header["update"]) == ("good", 1), told
    begun = read_model(LocalStorage(tmp_path), "good")[0]
    assert any(not weights[name].equal(begun[name]) for name in begun)
    # It goes on from there, and the one that was not taken from where it was.
    found = {each["name"]: each["weights"] for each in one._task(2)["config"]["candidates"]}
    assert found["good"].endswith("datacenter/models/update_1")
    assert found["poor"] == str(tmp_path / "poor")
    again = center(tmp_path, training=training)
    assert hello(again)[0]["name"] == "good"


def test_a_greeting_that_lies_about_its_length_is_no_greeting(tmp_path: Path) -> None:
    told: list[str] = []
    with serving(tmp_path, told) as (server, _):
        with socket.create_connection(("127.0.0.1", server._link.port)) as stranger:
            stranger.sendall(struct.pack(">IQ", 10, 1 << 50))
            assert soon(lambda: any("no greeting" in line for line in told))
