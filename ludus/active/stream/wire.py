"""An authenticated connection: messages of JSON headers and tensors, each with an HMAC of the peer.

    a message   length of the header (4 bytes), length of the tensors (8), header, tensors, proof (32)

Both sides share a secret, which is never sent. At the start each sends a nonce and proves with both that it
knows the secret; a key for this connection alone is derived from the three. A proof is an HMAC-SHA256 with
that key over the sender, the number of the message, and its content: a message cannot be changed, replayed,
reflected, or used in another connection. Nothing is encrypted: the connection is for loopback.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import socket
import struct
import time
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from ludus.core.errors import CheckpointError, LudusError
from ludus.store.strict_json import dump_json, parse_json
from ludus.store.tensors import MAX_TENSORS

Role = Literal["edge", "datacenter"]

MAX_HEADER = 1 << 20
_MAX_GREETING = 1 << 10
_LENGTHS = struct.Struct(">IQ")
_NUMBER = struct.Struct(">Q")
_VERSION = 1
_PROOF = hashlib.sha256().digest_size


class WireError(LudusError):
    """Received data is not a valid message of the peer; the connection is no longer usable."""


class LinkLost(LudusError):
    """The other side is gone, or does not answer."""


class Message(NamedTuple):
    """A message from one side to the other."""

    kind: str
    header: Mapping[str, Any]
    tensors: Mapping[str, Tensor]


class WireConnection:
    """One end of a connection, once both sides have proved that they know the secret."""

    def __init__(
        self, end: socket.socket, *, role: Role, secret: bytes, max_bytes: int, timeout: float
    ) -> None:
        """Do the handshake; raise WireError if the other side does not know the secret."""
        self._end, self._role, self._max_bytes = end, role, max_bytes
        self.timeout = timeout
        """Timeout of a whole message in seconds."""
        self._num_sent = self._num_received = 0
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            self._key = self._greet(secret)
        except BaseException:
            self.close()
            raise

    def _greet(self, secret: bytes) -> bytes:
        own = secrets.token_bytes(32)
        if self._role == "datacenter":
            self._say({"ludus": "stream", "version": _VERSION, "nonce": own.hex()})
            reply = self._hear()
            nonces = own + _from_hex(reply, "nonce")
            if not hmac.compare_digest(_from_hex(reply, "proof"), _mac(secret, b"edge", nonces)):
                self._say({"refused": "secret"})
                raise WireError("an edge was refused: it does not know the secret")
            self._say({"proof": _mac(secret, b"datacenter", nonces).hex()})
        else:
            reply = self._hear()
            if reply.get("ludus") != "stream" or reply.get("version") != _VERSION:
                raise WireError(
                    "what answers there is no datacenter of this version of ludus; look at the port"
                )
            nonces = _from_hex(reply, "nonce") + own
            self._say({"nonce": own.hex(), "proof": _mac(secret, b"edge", nonces).hex()})
            reply = self._hear()
            if reply.get("refused") == "secret":
                raise WireError("the datacenter refused us: its secret is another one")
            expected = _mac(secret, b"datacenter", nonces)
            if not hmac.compare_digest(_from_hex(reply, "proof"), expected):
                raise WireError(
                    "what answers there does not know the secret; nothing was sent to it"
                )
        return _mac(secret, b"session", nonces)

    def send(
        self, kind: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None
    ) -> None:
        """Send a message."""
        text = dump_json({"kind": kind, **header})
        data = save({name: one.contiguous() for name, one in tensors.items()}) if tensors else b""
        if len(text) > MAX_HEADER or len(data) > self._max_bytes:
            raise LudusError(
                f"a message {kind} would have {len(text) + len(data)} bytes, more than"
                f" link.max_message_bytes, {self._max_bytes}; raise it on both sides"
            )
        lengths = _LENGTHS.pack(len(text), len(data))
        proof = self._prove(self._role, self._num_sent, lengths, text, data)
        self._num_sent += 1
        self._write(lengths + text + data + proof)

    def receive(self, timeout: float | None = None) -> Message:
        """Return the next message, authenticated; `timeout` is for its beginning."""
        lengths = self._read(_LENGTHS.size, self.timeout if timeout is None else timeout)
        num_text, num_data = _LENGTHS.unpack(lengths)
        if num_text > MAX_HEADER or num_data > self._max_bytes:
            raise WireError(
                f"a message of {num_text + num_data} bytes was announced, more than"
                f" link.max_message_bytes, {self._max_bytes}; it was not read"
            )
        text, data = self._read(num_text, self.timeout), self._read(num_data, self.timeout)
        proof = self._read(_PROOF, self.timeout)
        peer: Role = "edge" if self._role == "datacenter" else "datacenter"
        if not hmac.compare_digest(
            proof, self._prove(peer, self._num_received, lengths, text, data)
        ):
            raise WireError("a message has no proof that it is the peer's; it was dropped unread")
        self._num_received += 1
        header = _parsed(text)
        kind = header.pop("kind", None)
        if not isinstance(kind, str):
            raise WireError("a message has no kind; the other side is of another version of ludus")
        return Message(kind, header, _tensors(data) if data else {})

    def close(self) -> None:
        """Close the connection."""
        self._end.close()

    def _prove(self, role: Role, number: int, *pieces: bytes) -> bytes:
        return _mac(self._key, role.encode(), _NUMBER.pack(number), *pieces)

    def _say(self, greeting: Mapping[str, Any]) -> None:
        text = dump_json(greeting)
        self._write(_LENGTHS.pack(len(text), 0) + text)

    def _hear(self) -> dict[str, Any]:
        """Return a greeting: limited in size, as the peer is not authenticated yet."""
        num_text, num_data = _LENGTHS.unpack(self._read(_LENGTHS.size, self.timeout))
        if num_text > _MAX_GREETING or num_data:
            raise WireError(
                "what was said is no greeting; look at the port, and who connects to it"
            )
        return _parsed(self._read(num_text, self.timeout))

    def _write(self, data: bytes) -> None:
        self._end.settimeout(self.timeout)
        try:
            self._end.sendall(data)
        except TimeoutError:
            raise LinkLost(f"nothing was taken within {self.timeout:g} seconds") from None
        except OSError as error:
            raise LinkLost(f"the connection is gone ({error.strerror or error})") from None

    def _read(self, size: int, timeout: float) -> bytes:
        found, deadline = bytearray(), time.monotonic() + timeout
        while len(found) < size:
            left = deadline - time.monotonic()
            try:
                if left <= 0:
                    raise TimeoutError
                self._end.settimeout(left)
                some = self._end.recv(min(size - len(found), 1 << 20))
            except TimeoutError:
                raise LinkLost(f"no whole message came within {timeout:g} seconds") from None
            except OSError as error:
                raise LinkLost(f"the connection is gone ({error.strerror or error})") from None
            if not some:
                where = "in the middle of a message" if found else "by the other side"
                raise LinkLost(f"the connection was closed {where}")
            found += some
        return bytes(found)


def _mac(key: bytes, *pieces: bytes) -> bytes:
    made = hmac.new(key, digestmod=hashlib.sha256)
    for piece in pieces:
        made.update(_NUMBER.pack(len(piece)))
        made.update(piece)
    return made.digest()


def _from_hex(greeting: Mapping[str, Any], key: str) -> bytes:
    text = greeting.get(key)
    try:
        found = bytes.fromhex(text) if isinstance(text, str) else b""
    except ValueError:
        found = b""
    if len(found) != 32:
        raise WireError(f"a greeting has no {key}; look at the port, and who connects to it")
    return found


def _parsed(text: bytes) -> dict[str, Any]:
    try:
        found = parse_json(text, source="a message")
    except CheckpointError as error:
        raise WireError(f"what came is no message: {error}") from None
    if not isinstance(found, dict):
        raise WireError("what came is no message: its header is no mapping")
    return found


def _tensors(data: bytes) -> dict[str, Tensor]:
    (length,) = struct.unpack("<Q", data[:8]) if len(data) >= 8 else (0,)
    # Counted before it is parsed: a hundred thousand empty tensors take seconds to make.
    if data[8 : 8 + length].count(b'"dtype"') > MAX_TENSORS:
        raise WireError(f"a message holds more than {MAX_TENSORS} tensors")
    try:
        return dict(load(data))
    except (SafetensorError, ValueError, RuntimeError, KeyError, json.JSONDecodeError) as error:
        raise WireError(f"a message holds tensors that cannot be read: {error}") from None
