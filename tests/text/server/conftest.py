"""A server in a process of its own, and engines in this one; both with a tiny model."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from ludus.process import child
from ludus.text.models.library import ModelLibrary
from ludus.text.models.new_model import make_model
from ludus.text.server import start
from ludus.text.server.engine import TextEngine
from ludus.text.server.new_models import preset
from ludus.text.server.settings import EngineSettings
from ludus.text.server.start import ServerHandle, start_server
from tests.text.server.warm import SERVER, WarmServers


@pytest.fixture(scope="session")
def warm_servers() -> Iterator[WarmServers]:
    """The process that servers and workers are forked from."""
    servers = WarmServers()
    yield servers
    servers.close()


@contextlib.contextmanager
def forked(servers: WarmServers) -> Iterator[None]:
    """Let servers and workers be forked inside the block."""
    own = SimpleNamespace(Popen=servers.popen, DEVNULL=subprocess.DEVNULL)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(child, "subprocess", own)
        patch.setattr(start, "_CHILD", SERVER)
        yield


@pytest.fixture
def forked_servers(warm_servers: WarmServers) -> Iterator[None]:
    """Let servers and workers be forked in this test."""
    with forked(warm_servers):
        yield


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a tiny model."""
    directory = tmp_path_factory.mktemp("models") / "tiny"
    make_model(preset("tiny"), directory)
    return directory


@pytest.fixture
def root(tiny: Path, tmp_path: Path) -> Path:
    """A root with the tiny model."""
    ModelLibrary(tmp_path / "root/models").add("tiny", tiny)
    return tmp_path / "root"


@pytest.fixture(scope="session")
def server(
    warm_servers: WarmServers, tiny: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerHandle]:
    """A server that many tests share: none may stop it, or count what others have made."""
    root = tmp_path_factory.mktemp("served")
    with forked(warm_servers):
        started = start_server(root, models={"tiny": tiny})
    with started:
        yield started


Opened = Callable[..., TextEngine]


@pytest.fixture
def opened(forked_servers: None, root: Path) -> Iterator[Opened]:
    """Return a function that opens the engine of the root; it is closed after the test."""
    engines: list[TextEngine] = []

    def open_engine(settings: EngineSettings | None = None) -> TextEngine:
        engines.append(TextEngine(root, settings).__enter__())
        return engines[-1]

    yield open_engine
    for engine in engines:
        engine.close()


@pytest.fixture
def copied(root: Path, tmp_path: Path) -> Callable[[str], Path]:
    """Return a function that makes another root with the tiny model."""

    def copy(name: str) -> Path:
        shutil.copytree(root, tmp_path / name)
        return tmp_path / name

    return copy
