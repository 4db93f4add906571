"""What all the fault tests compare with: a small run that nothing happened to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.faults.small_run import ending, train


@pytest.fixture(scope="session")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a small run that nothing happened to."""
    root = tmp_path_factory.mktemp("unbroken")
    assert train(root, "run").status == "finished"
    return root / "run"


@pytest.fixture(scope="session")
def right_ending(unbroken: Path) -> dict[str, Any]:
    return ending(unbroken)
