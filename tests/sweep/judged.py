"""Configs of climbs that are judged, and what lends their kind to a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ludus.config import registry, strict_yaml
from ludus.config.base import typed
from tests.sweep.judged_hill import JudgedTrainer
from tests.sweep.small import hill_data

JUDGED = "tests.sweep.judged_hill"

# Tests of other folders list what there is: it is known only where it is lent.
registry._REGISTERED["trainer"].pop("judged-hill", None)


@pytest.fixture
def judged(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let the judged hill be known, as --plugin would make it, and work in a new directory."""
    monkeypatch.setattr(registry, "loaded_plugins", [JUDGED])
    monkeypatch.setitem(registry._REGISTERED["trainer"], "judged-hill", JudgedTrainer)
    monkeypatch.chdir(tmp_path)


def judged_config(**changed: Any) -> Any:
    """Return the config of a judged climb."""
    own = {"kind": "judged-hill", "name": "climb", "sour_seed": None, "sour_mood": "well"}
    data = hill_data()
    data["settings"]["threads"] = None
    return typed({**data, **own, **changed}, source="the climb")


def judged_file(**changed: Any) -> str:
    """Write such a config to a file and return its path."""
    data = judged_config(**changed).model_dump(mode="json")
    Path("climb.yaml").write_text(strict_yaml.dump(data))
    return "climb.yaml"
