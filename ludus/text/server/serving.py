"""Serving an engine over HTTP: the socket, uvicorn, and an orderly end."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ludus.core.errors import ConfigError
from ludus.text.server.access import read_token
from ludus.text.server.engine import TextEngine
from ludus.text.server.settings import Say, ServerSettings

if TYPE_CHECKING:
    from ludus.text.server.app import Application

_BACKLOG = 2048
_GRACE = 5
"""Seconds that requests in progress are given at the end."""
_KEEP_ALIVE = 60
"""Seconds after which an idle connection is closed; clients keep theirs for less."""


def bound_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens there; raise ConfigError if that is not possible."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"the server cannot listen on {host} port {port}: {reason}; choose another --port, or 0 for a"
            " free one"
        ) from None
    return listening


def url_of(listening: socket.socket, host: str) -> str:
    """Return the base URL of the API for clients on this machine."""
    port = listening.getsockname()[1]
    # Every address of the machine: clients here reach it at the loopback address.
    shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    return f"http://[{shown}]:{port}/v1" if ":" in shown else f"http://{shown}:{port}/v1"


class Serving:
    """An engine that is being served; `run` returns after `stop`."""

    def __init__(self, engine: TextEngine, settings: ServerSettings, *, tell: Say) -> None:
        """Open the socket and make the application; raise LudusError if that is not possible."""
        from ludus.text.server.app import make_application

        self.engine = engine
        self.token = read_token(Path(engine.root))
        self._socket = bound_socket(settings.host, settings.port)
        self.url = url_of(self._socket, settings.host)
        try:
            app = make_application(engine, settings, self.token, tell=tell)
            self._server = _server(app)
        except BaseException:
            self._socket.close()
            raise

    def run(self) -> None:
        """Serve until `stop` is called."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._socket.close()

    def stop(self) -> None:
        """Let `run` return, once the requests in progress are answered or have had their time."""
        self._server.should_exit = True
        self.engine.jobs.store.wake()

    @contextlib.contextmanager
    def in_background(self) -> Iterator[None]:
        """Serve in a thread inside the block."""
        thread = threading.Thread(target=self.run, name="server", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.stop()
            thread.join()


def _server(app: Application) -> Any:
    """Return a server of uvicorn for an application that leaves signals to ludus."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextlib.contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    config = uvicorn.Config(
        cast("Any", app),
        http="httptools",
        loop="uvloop",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=_GRACE,
    )
    return Server(config)
