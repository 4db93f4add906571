"""The API key of the faulty server, for every test of the client."""

from __future__ import annotations

import pytest

from tests.text.client.parts import KEY


@pytest.fixture(autouse=True)
def api_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAULTY_KEY", KEY)
