"""Earlier runs that tests start from, and the command line."""

from __future__ import annotations

import pytest

from tests.command_line import Ludus, in_process
from tests.start.sources import source as source


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)
