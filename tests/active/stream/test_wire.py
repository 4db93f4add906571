"""Messages between edge and datacenter: proved, bounded, never sent twice, never anything but data."""

import json
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from ludus.active.stream.wire import LinkLost, WireConnection, WireError
from ludus.core.errors import LudusError

SECRET = b"a secret of some length"


def connect(end: socket.socket, role: Any, secret: bytes = SECRET, **more: Any) -> WireConnection:
    return WireConnection(
        end, role=role, secret=secret, **{"max_bytes": 10_000, "timeout": 2.0, **more}
    )


def in_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    """Return what waits for the function and returns its result, or the error it raised."""
    found: list[Any] = []

    def run() -> None:
        try:
            found.append(function())
        except LudusError as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def join() -> Any:
        thread.join(60)
        return found[0]

    return join


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    door = socket.create_server(("127.0.0.1", 0))
    one = socket.create_connection(door.getsockname())
    other, _ = door.accept()
    with door, one, other:
        yield one, other


@pytest.fixture
def both(ends: tuple[socket.socket, socket.socket]) -> tuple[WireConnection, WireConnection]:
    join = in_thread(lambda: connect(ends[1], "datacenter"))
    edge = connect(ends[0], "edge")
    return edge, join()


@pytest.mark.covers("003-S7")
def test_a_message_arrives_with_its_header_and_tensors(
    both: tuple[WireConnection, WireConnection],
) -> None:
    edge, center = both
    sent = {"a": torch.arange(6).reshape(2, 3), "b": torch.tensor(1.5, dtype=torch.bfloat16)}
    edge.send("normal", {"step": 3, "text": "ü"}, sent)
    kind, header, tensors = center.receive()
    assert (kind, header) == ("normal", {"step": 3, "text": "ü"})
    assert tensors["a"].equal(sent["a"])
    assert tensors["b"].equal(sent["b"])
    center.send("normal", {})
    assert edge.receive() == ("normal", {}, {})


@pytest.mark.covers("003-D12")
def test_who_does_not_know_the_secret_is_refused_and_both_sides_say_so(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    join = in_thread(lambda: connect(ends[1], "datacenter"))
    with pytest.raises(WireError, match="its secret is another one"):
        connect(ends[0], "edge", b"some other secret, as long")
    assert "does not know the secret" in str(join())


def test_a_datacenter_that_does_not_know_the_secret_is_told_nothing(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    def pretend() -> None:
        _greet(ends[1], {"ludus": "stream", "version": 1, "nonce": "00" * 32})
        _heard(ends[1])
        _greet(ends[1], {"proof": "11" * 32})

    join = in_thread(pretend)
    with pytest.raises(WireError, match="does not know the secret"):
        connect(ends[0], "edge")
    join()


def _greet(end: socket.socket, greeting: object) -> None:
    text = json.dumps(greeting).encode()
    end.sendall(struct.pack(">IQ", len(text), 0) + text)


def _heard(end: socket.socket) -> Any:
    length, _ = struct.unpack(">IQ", _exactly(end, 12))
    return json.loads(_exactly(end, length))


def _exactly(end: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        found += end.recv(size - len(found))
    return found


class Tapped:
    """A socket that keeps what is sent over it."""

    def __init__(self, end: socket.socket) -> None:
        self.end, self.sent = end, []  # type: ignore[var-annotated]

    def sendall(self, data: bytes) -> None:
        self.sent.append(data)
        self.end.sendall(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.end, name)


def test_a_greeting_of_an_earlier_connection_is_worth_nothing_in_another(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    tapped: Any = Tapped(ends[0])
    join = in_thread(lambda: connect(ends[1], "datacenter"))
    connect(tapped, "edge")
    join()
    with socket.create_server(("127.0.0.1", 0)) as door:
        thief = socket.create_connection(door.getsockname())
        other, _ = door.accept()
        with thief, other:
            join = in_thread(lambda: connect(other, "datacenter"))
            _heard(thief)
            thief.sendall(tapped.sent[0])
            assert _heard(thief) == {"refused": "secret"}
            assert "does not know the secret" in str(join())


@pytest.mark.parametrize("deed", ["again", "changed", "sent back"])
def test_a_message_sent_again_or_changed_or_sent_back_is_dropped(
    ends: tuple[socket.socket, socket.socket], deed: str
) -> None:
    tapped: Any = Tapped(ends[0])
    join = in_thread(lambda: connect(ends[1], "datacenter"))
    edge, center = connect(tapped, "edge"), join()
    edge.send("normal", {"step": 1})
    center.receive()
    message = tapped.sent[-1]
    if deed == "again":
        ends[0].sendall(message)
    if deed == "changed":
        edge.send("normal", {"step": 2})
        center.receive()
        ends[0].sendall(message.replace(b"1", b"7"))
    if deed == "sent back":
        ends[1].sendall(message)
        center = edge
    with pytest.raises(WireError, match="no proof that it is the peer's"):
        center.receive()


def test_a_message_that_is_too_large_is_refused_before_it_is_read(
    both: tuple[WireConnection, WireConnection], ends: tuple[socket.socket, socket.socket]
) -> None:
    ends[0].sendall(struct.pack(">IQ", 10, 1 << 60))
    with pytest.raises(WireError, match=r"announced, more than link\.max_message_bytes, 10000"):
        both[1].receive()
    with pytest.raises(LudusError, match=r"would have .* raise it on both"):
        both[1].send("normal", {}, {"a": torch.zeros(100_000)})


def test_a_header_that_is_too_large_is_refused_before_it_is_read(
    both: tuple[WireConnection, WireConnection], ends: tuple[socket.socket, socket.socket]
) -> None:
    ends[0].sendall(struct.pack(">IQ", (1 << 32) - 1, 0))
    with pytest.raises(WireError, match="was announced"):
        both[1].receive()


def test_before_the_secret_is_proved_only_a_short_greeting_is_read(
    ends: tuple[socket.socket, socket.socket],
) -> None:
    join = in_thread(lambda: connect(ends[1], "datacenter"))
    _heard(ends[0])
    ends[0].sendall(struct.pack(">IQ", 5000, 0))
    assert "no greeting" in str(join())


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"{", "no message"),
        (b"[1]", "no mapping"),
        (b'{"nonce": "00", "nonce": "11"}', "stands twice"),
        (b'{"nonce": "zz", "proof": 3}', "no nonce"),
        (b"[" * 500, "no message"),
        (b"\xff\xfe", "no message"),
    ],
)
def test_what_is_no_json_is_a_sentence(
    ends: tuple[socket.socket, socket.socket], text: bytes, told: str
) -> None:
    join = in_thread(lambda: connect(ends[1], "datacenter"))
    _heard(ends[0])
    ends[0].sendall(struct.pack(">IQ", len(text), 0) + text)
    found = join()
    assert isinstance(found, WireError)
    assert told in str(found)


def test_a_message_that_breaks_off_is_told(
    both: tuple[WireConnection, WireConnection], ends: tuple[socket.socket, socket.socket]
) -> None:
    ends[0].sendall(struct.pack(">IQ", 100, 0) + b"{")
    ends[0].close()
    with pytest.raises(LinkLost, match="closed in the middle of a message"):
        both[1].receive()


def test_a_message_that_does_not_go_on_is_given_up(
    both: tuple[WireConnection, WireConnection], ends: tuple[socket.socket, socket.socket]
) -> None:
    both[1].timeout = 0.1
    ends[0].sendall(struct.pack(">IQ", 100, 0))
    with pytest.raises(LinkLost, match=r"no whole message came within 0.1 seconds"):
        both[1].receive()


def test_tensors_that_are_none_are_a_sentence(both: tuple[WireConnection, WireConnection]) -> None:
    from ludus.active.stream import wire

    for data in (b"junk", b"\x00" * 8, struct.pack("<Q", 1 << 40) + b"{}", b"\x80\x04K\x01."):
        with pytest.raises(WireError, match="cannot be read"):
            wire._tensors(data)
