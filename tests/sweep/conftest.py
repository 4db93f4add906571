"""The hill is a plugin of these tests alone."""

from __future__ import annotations

import pytest

from tests.sweep.small import lend_hill


@pytest.fixture(autouse=True)
def own_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    lend_hill(monkeypatch)
