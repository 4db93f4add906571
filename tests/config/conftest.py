"""What a test of the registry loads is forgotten after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ludus.config import registry


@pytest.fixture(autouse=True)
def plugins_as_before() -> Iterator[None]:
    """Let no later test's child processes be given a plugin of this one."""
    before = list(registry.loaded_plugins)
    yield
    registry.loaded_plugins[:] = before
