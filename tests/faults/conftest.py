"""One warm process serves all the fault tests of a session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.small_run import ending, train
from tests.faults.warm import WarmProcess


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WarmProcess]:
    process = WarmProcess(tmp_path_factory.mktemp("warm"))
    yield process
    process.close()


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small run that nothing happened to."""
    root = tmp_path_factory.mktemp("unbroken")
    assert train(root, "run").status == "finished"
    return root / "run"


@pytest.fixture(scope="session")
def right_ending(unbroken: Path) -> dict[str, Any]:
    return ending(unbroken)
