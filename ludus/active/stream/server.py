"""The datacenter's server: it listens on loopback, authenticates edges by the secret, and answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from ludus.active.stream.config import LinkConfig
from ludus.active.stream.datacenter import Datacenter
from ludus.active.stream.wire import LinkLost, Message, WireConnection, WireError
from ludus.core.errors import LudusError

_MOST_EDGES = 8
_GREETING_SECONDS = 5.0
_IDLE_SECONDS = 3600.0


class Server:
    """Serves edges, a thread for each, until it is stopped."""

    def __init__(
        self, link: LinkConfig, secret: bytes, datacenter: Datacenter, *, ends_with_edge: bool,
        tell: Callable[[str], None],
    ) -> None:  # fmt: skip
        self._link, self._secret, self._datacenter, self._tell = link, secret, datacenter, tell
        self._ends_with_edge = ends_with_edge
        self._one_at_a_time = threading.Lock()
        self._num_here = 0
        self._places = threading.Semaphore(_MOST_EDGES)
        self.is_over = threading.Event()
        """Set to stop."""
        try:
            self._door = socket.create_server(("127.0.0.1", link.port))
        except OSError as error:
            raise LudusError(
                f"127.0.0.1:{link.port} cannot be listened on: {error.strerror}; choose another"
                " link.port"
            ) from None

    def serve(self) -> None:
        """Answer edges, and run the retraining in the calling thread."""
        self._tell(f"listening on 127.0.0.1:{self._link.port}")
        self._door.settimeout(0.05)
        with self._door:
            while not self.is_over.is_set():
                with contextlib.suppress(TimeoutError):
                    self._let_in(self._door.accept()[0])
                with self._one_at_a_time:
                    self._datacenter.tend()

    def _let_in(self, end: socket.socket) -> None:
        if not self._places.acquire(blocking=False):
            self._tell(f"{_MOST_EDGES} edges are here already; one more was turned away")
            end.close()
            return
        threading.Thread(target=self._attend, args=(end,), name="edge", daemon=True).start()

    def _attend(self, end: socket.socket) -> None:
        link = self._link
        try:
            connection = WireConnection(
                end, role="datacenter", secret=self._secret, max_bytes=link.max_message_bytes,
                timeout=min(link.timeout_seconds, _GREETING_SECONDS),
            )  # fmt: skip
            connection.timeout = link.timeout_seconds
            self._tell("an edge is here")
            with self._one_at_a_time:
                self._num_here += 1
            try:
                is_last = self._talk(connection)
            finally:
                with self._one_at_a_time:
                    self._num_here -= 1
            if is_last and self._ends_with_edge and not self._num_here:
                self.is_over.set()
        except LinkLost as error:
            self._tell(f"an edge is gone: {error}; waiting for the next")
        except LudusError as error:
            self._tell(f"{error}; waiting for the next edge")
        finally:
            end.close()
            self._places.release()

    def _talk(self, connection: WireConnection) -> bool:
        """Answer an edge until it disconnects; return whether it has finished its stream."""
        while not self.is_over.is_set():
            message = connection.receive(_IDLE_SECONDS)
            try:
                self._check_limits(message)
                with self._one_at_a_time:
                    header, tensors = self._datacenter.answer(message)
                connection.send(message.kind, header, tensors)
            except (WireError, LinkLost):
                raise
            except LudusError as error:
                connection.send("refused", {"why": str(error)})
                continue
            if message.kind == "normal" and message.header.get("is_last") is True:
                self._tell("the edge has come to the end of its stream")
                return True
        return False

    def _check_limits(self, message: Message) -> None:
        own, theirs = self._link.max_message_bytes, message.header.get("max_message_bytes")
        if message.kind == "handshake" and theirs != own:
            raise LudusError(
                f"link.max_message_bytes is {theirs} at the edge and {own} here; make the two files agree"
            )
