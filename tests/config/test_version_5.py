"""Version 5 has one vocabulary of keys: what older files and the seeds of the library say is still read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config.base import from_data, read_config
from tests.config.older import as_version_4

CONFIGS = Path(__file__).parents[2] / "configs"
KINDS = sorted(path.stem for path in CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_version_4_means_what_it_meant(name: str) -> None:
    config = ludus.example(name)
    old = as_version_4(config)
    is_new = name == "rerun_tests" or name.startswith("pure_text")
    assert {**old, "version": config.version} != config.model_dump() or is_new
    assert from_data(old, source="old.yaml") == config


@pytest.mark.parametrize("name", KINDS)
def test_lengths_and_intervals_name_their_counter(name: str) -> None:
    """A length is max_<counter>, an interval <verb>_every_<counter>: no other name of one is left."""
    words = ("freq", "interval", "opts", "record_every", "save_every", "milestone", "steps_before")
    data = ludus.example(name).model_dump()
    found = [key for key in _keys(data) if any(word in key for word in words)]
    assert not found


@pytest.mark.covers("004-M1")
@pytest.mark.parametrize(
    ("kind", "old", "new", "value"),
    [
        ("dqn", "max_opts", "steps.max_opt_steps", 30000),
        ("dqn", "steps.eval_interval", "steps.evaluate_every_opt_steps", 4),
        ("dqn", "opt_interval", "steps.update_every_env_steps", 4),
        ("ppo", "eval_freq", "evaluate_every_epochs", 4),
        ("ppo", "passes", "num_epochs", 4),
        ("fused_dqn", "host.steps_before_rollout", "host.collect_every_rounds", 4),
        ("vanilla_ppo", "evaluation.every_iterations", "evaluate_every_iterations", 4),
        ("supervised", "max_steps", "max_opt_steps", 4),
    ],
)
def test_a_name_of_a_seed_or_an_older_version_is_accepted_and_told(
    kind: str, old: str, new: str, value: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config: Any = ludus.example(kind)
    changed = config.replace(**{old: value})
    assert changed[new] == changed[old] == value
    assert capsys.readouterr().err == f"ludus: '{old}' is called '{new}' now\n"
    path = tmp_path / "own.yaml"
    path.write_text(config.to_yaml())
    assert read_config(path, [f"{old}={value}"])[new] == value
    capsys.readouterr()
    config.replace(**{new: value})
    assert capsys.readouterr().err == ""


def _keys(data: object) -> list[str]:
    if not isinstance(data, dict):
        return []
    return [word for key, value in data.items() for word in (key, *_keys(value))]
