"""The link from an edge to its datacenter, over loopback or in the same process, and the requests over it."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from torch import Tensor

from ludus.active.stream.config import LinkConfig
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.wire import LinkLost, Message, WireConnection
from ludus.core.errors import LudusError

Tensors = Mapping[str, Tensor]
_AGAIN_SECONDS = 0.25


class Link(Protocol):
    """Sends requests to a datacenter; raises LinkLost if it is gone."""

    def ask(self, kind: str, header: Mapping[str, Any], tensors: Tensors) -> Message: ...
    def close(self) -> None: ...


class LoopbackLink:
    """A connection to the datacenter, opened when first needed, and reopened after a loss."""

    def __init__(self, config: LinkConfig) -> None:
        self._config, self._secret = config, config.secret()
        self._connection: WireConnection | None = None

    def ask(self, kind: str, header: Mapping[str, Any], tensors: Tensors) -> Message:
        """Return the answer to a message."""
        try:
            if self._connection is None:
                self._connection = self._connected()
            if kind == "handshake":
                header = {**header, "max_message_bytes": self._config.max_message_bytes}
            self._connection.send(kind, header, tensors)
            answer = self._connection.receive()
        except LudusError:
            self.close()
            raise
        if answer.kind == "refused":
            raise LudusError(f"the datacenter refused: {answer.header.get('why')}")
        return answer

    def _connected(self) -> WireConnection:
        config = self._config
        try:
            end = socket.create_connection(("127.0.0.1", config.port), config.timeout_seconds)
        except OSError as error:
            raise LinkLost(
                f"nobody answers on 127.0.0.1:{config.port} ({error.strerror or error})"
            ) from None
        return WireConnection(
            end, role="edge", secret=self._secret, max_bytes=config.max_message_bytes,
            timeout=config.timeout_seconds,
        )  # fmt: skip

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with contextlib.suppress(OSError):
                self._connection.close()
            self._connection = None


class DirectLink:
    """The datacenter is in this process."""

    def __init__(self, datacenter: Datacenter) -> None:
        self._datacenter = datacenter

    def ask(self, kind: str, header: Mapping[str, Any], tensors: Tensors) -> Message:
        """Return the answer to a message, and advance a retraining."""
        found, answered = self._datacenter.answer(Message(kind, header, tensors))
        self._datacenter.tend()
        return Message(kind, found, answered)

    def close(self) -> None:
        """Close the datacenter and its retraining."""
        self._datacenter.close()


class Stopped(LudusError):
    """The edge was stopped while it waited; the request is repeated when it resumes."""


class Requests:
    """Sends an edge's messages with its identity; after a lost connection it introduces itself again."""

    def __init__(
        self, link: Link, introduction: Mapping[str, Any], *, waits: bool,
        is_over: threading.Event, tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._link, self._introduction, self._waits = link, dict(introduction), waits
        self._is_over, self._tell = is_over, tell
        self._is_lost, self._is_known = False, False
        self.update = -1
        """The update that the datacenter had when the edge last introduced itself."""

    def introduce(self) -> Message:
        """Return the answer to a handshake, with the model; raise LinkLost if there is none."""
        answer = self._link.ask("handshake", self._introduction, {})
        update = answer.header.get("update")
        if not isinstance(update, int) or isinstance(update, bool) or update < self.update:
            raise LudusError(
                f"the datacenter is at update {update!r}, and the edge has seen update {self.update}: it"
                " is another one, or its folder was removed; give the edge another name"
            )
        self.update, self._is_known = update, True
        return answer

    def ask(
        self, kind: str, header: Mapping[str, Any], tensors: Mapping[str, Tensor] | None = None,
        *, waits: bool | None = None,
    ) -> Message | None:  # fmt: skip
        """Return the answer; None if the datacenter is gone and the edge does not wait for it."""
        waits = self._waits if waits is None else waits
        while True:
            try:
                if not self._is_known:
                    self.introduce()
                if self._is_lost:
                    self._is_lost = False
                    self._tell("the datacenter is back")
                return self._link.ask(kind, {**self._introduction, **header}, tensors or {})
            except LinkLost as error:
                self._is_known = False
                if not self._is_lost:
                    then = "waiting for it" if waits else "going on with the model there is"
                    self._tell(f"the datacenter is gone: {error}; {then}")
                self._is_lost = True
            if not waits:
                return None
            if self._is_over.wait(_AGAIN_SECONDS):
                raise Stopped("asked to end")
