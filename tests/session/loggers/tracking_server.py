"""MLflow's own server in a process, and a gate before it that can be shut as if the server had died."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path


class TrackingServer:
    """A server of MLflow on a free port of 127.0.0.1, with a database in a folder."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        command = [
            *(sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--workers", "1"),
            *("--port", str(self.port), "--backend-store-uri", f"sqlite:///{folder}/mlflow.db"),
            *("--artifacts-destination", str(folder / "artifacts")),
        ]
        quick = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
        with (folder / "server.txt").open("wb") as output:
            self._process = subprocess.Popen(
                command,
                cwd=folder,
                env={**os.environ, **quick},
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        for _ in range(1200):
            with contextlib.suppress(urllib.error.URLError, OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5).close()
                return
            time.sleep(0.1)
        self.stop()
        raise TimeoutError((folder / "server.txt").read_text())

    def stop(self) -> None:
        """End the server and its workers."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


class Gate:
    """A port that passes everything on to the server; when shut, connections are cut and refused."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.port = free_port()
        self.uri = f"http://127.0.0.1:{self.port}"
        self._listener: socket.socket | None = None
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self.open()

    def open(self) -> None:
        """Pass on connections."""
        self._listener = listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen()
        self._begin(self._accept, listener)

    def shut(self) -> None:
        """Cut every connection, and refuse new ones."""
        if self._listener is not None:
            self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for one in self._open:
            one.close()
        self._listener, self._open, self._threads = None, [], []

    def _begin(self, work: object, *given: socket.socket) -> None:
        thread = threading.Thread(target=work, args=given, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = listener.accept()
                other = socket.create_connection(("127.0.0.1", self._server_port))
                self._open += [one, other]
                self._begin(_pass_on, one, other)
                self._begin(_pass_on, other, one)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    for one in (source, target):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
