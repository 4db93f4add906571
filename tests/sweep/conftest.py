"""The hill is a plugin of these tests alone."""

from __future__ import annotations

import pytest

from ludus.config import registry
from tests.sweep.hill import HillTrainer


@pytest.fixture(autouse=True)
def own_plugin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the hill after each test, as those of other folders list what there is."""
    monkeypatch.setattr(registry, "loaded_plugins", list(registry.loaded_plugins))
    monkeypatch.setitem(registry._REGISTERED["trainer"], "hill", HillTrainer)


registry._REGISTERED["trainer"].pop("hill")
