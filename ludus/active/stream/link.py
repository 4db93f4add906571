"""The link from an edge to its datacenter: over loopback, or in the same process."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Mapping
from typing import Any, Protocol

from torch import Tensor

from ludus.active.stream.config import LinkConfig
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.wire import Connection, LinkLost, Message
from ludus.core.errors import LudusError

Tensors = Mapping[str, Tensor]


class Link(Protocol):
    """Sends requests to a datacenter; raises LinkLost if it is gone."""

    def ask(self, kind: str, header: Mapping[str, Any], tensors: Tensors) -> Message: ...
    def close(self) -> None: ...


class LoopbackLink:
    """A connection to the datacenter, opened when first needed, and reopened after a loss."""

    def __init__(self, config: LinkConfig) -> None:
        self._config, self._secret = config, config.secret()
        self._connection: Connection | None = None

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

    def _connected(self) -> Connection:
        config = self._config
        try:
            end = socket.create_connection(("127.0.0.1", config.port), config.timeout_seconds)
        except OSError as error:
            raise LinkLost(
                f"nobody answers on 127.0.0.1:{config.port} ({error.strerror or error})"
            ) from None
        return Connection(
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
