"""The trainer of two scores that the documents teach: a plugin that is evaluated beside training."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config import registry
from ludus.config.base import validate
from ludus.config.migrations import VERSION
from ludus.store.local import LocalStorage
from ludus.store.models import read_model
from ludus.testing.trainers import check_kill_anywhere, check_trainer

pytestmark = pytest.mark.usefixtures("warm_children")

PAGE = Path(__file__).parents[2] / "docs" / "add-your-own.md"


@pytest.fixture
def tag(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the taught module, loaded as a plugin, so that a child process can load it too."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (block,) = [block for block in blocks if "class Tag(" in block]
    (tmp_path / "tag_plugin.py").write_text(block)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(registry._REGISTERED["trainer"], "tag", raising=False)
    monkeypatch.setattr(registry, "loaded_plugins", [])
    ludus.load_plugin("tag_plugin")
    yield sys.modules["tag_plugin"]
    del sys.modules["tag_plugin"], registry._REGISTERED["trainer"]["tag"]


def make(module: Any, num_rounds: int = 5) -> Any:
    settings = ludus.example("supervised").settings.model_dump()
    settings |= {"display": "none", "loggers": []}
    settings["checkpoint"] |= {"every_stages": 1, "every_seconds": 0.0}
    data = {"version": VERSION, "kind": "tag", "name": "tag", "seed": 3, "settings": settings}
    return module.Tag(validate(module.TagConfig, {**data, "num_rounds": num_rounds}, source="tag"))


def test_it_keeps_the_best_weights_of_each_role_as_of_their_launch(
    tag: Any, tmp_path: Path
) -> None:
    result = make(tag).fit(root=str(tmp_path), name="run")
    assert result.exact
    rows = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    assert [row["opt_steps"] for row in rows] == [1, 2, 3, 4, 5]
    storage = LocalStorage(tmp_path / "run")
    for copy, best, metric, pick in (
        ("models/best", result.best, "eval/chaser_return", max),
        ("models/best-runner", result.more_bests["runner"], "eval/runner_error", min),
    ):
        row = pick(rows, key=lambda row, metric=metric: row[metric])
        assert best is not None
        assert best["score"] == row[metric]
        assert best["counters"]["opt_steps"] == row["opt_steps"]
        weights, _ = read_model(storage, copy)
        both = {"chaser": weights.get("chaser"), "runner": weights.get("runner")}
        (role,) = [name for name, values in both.items() if values is not None]
        values = weights[role].sum() if role == "chaser" else weights[role].abs().sum()
        assert float(values) == row[metric]


def test_killed_anywhere_it_ends_as_if_never_killed(tag: Any, tmp_path: Path) -> None:
    check_kill_anywhere(lambda: make(tag, 3), tmp_path, max_kills=1)


def test_it_keeps_the_light_contract(tag: Any, tmp_path: Path) -> None:
    check_trainer(lambda: make(tag, 4), tmp_path, level="light")


def test_a_worker_that_was_not_given_the_plugin_is_refused_before_work(
    tag: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "loaded_plugins", [])
    with pytest.raises(ludus.LudusError, match="cannot rebuild what it is to evaluate"):
        make(tag).fit(root=str(tmp_path), name="run")
