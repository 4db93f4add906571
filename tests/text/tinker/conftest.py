"""One server for all tests of a process; a test may kill it and start it again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ludus.text.server.settings import ServerSettings
from ludus.text.server.start import ServerHandle, start_server
from tests.text.tinker.support import TINY


class LocalServer:
    """A server with the model `tiny`, at one address for its whole life."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._handle = self._started(port=0)
        self.url = self._handle.url.removesuffix("/v1")
        self.token = self._handle.token

    def _started(self, port: int) -> ServerHandle:
        settings = ServerSettings(port=port)
        return start_server(self._root, new_models={"tiny": TINY}, server=settings)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._handle.child.kill()

    def start_again(self) -> None:
        """Serve the same directory at the same address."""
        self._handle = self._started(port=urlsplit(self.url).port or 0)

    def close(self) -> None:
        self._handle.close()


@pytest.fixture(scope="package")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    found = LocalServer(tmp_path_factory.mktemp("server"))
    yield found
    found.close()
