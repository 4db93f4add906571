"""An S3-speaking server on loopback, begun once for all tests of this process and ended with them."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import pytest

BUCKET = "ludus-tests"

# It ends with the process that holds its input open, however that ends.
_SERVE = """
import os, sys, threading
threading.Thread(target=lambda: (sys.stdin.buffer.read(), os._exit(0)), daemon=True).start()
from moto.server import main
main(["-H", "127.0.0.1", "-p", sys.argv[1]])
"""


_SERVERS: list[Server] = []


def stop_all() -> None:
    """End every server of this process."""
    for one in _SERVERS:
        one.stop()


class Server:
    """moto's server in a process of its own, empty at its start."""

    def __init__(self, **variables: str) -> None:
        self._variables = variables
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None
        _SERVERS.append(self)
        self.start()

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _SERVE, str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **self._variables},
        )
        for _ in range(600):
            try:
                urllib.request.urlopen(f"{self.url}/moto-api/", timeout=1).close()
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise TimeoutError("moto's server does not answer")

    def make_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=10).close()

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }


@functools.cache
def server() -> Server:
    """Return the server, with a bucket and this process's environment pointing to it."""
    pytest.importorskip("moto")
    pytest.importorskip("s3fs")
    found = Server()
    os.environ.update(found.environment())
    found.make_bucket(BUCKET)
    return found
