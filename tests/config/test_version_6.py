"""Version 6 has the keys of every family in the same places: what version 5 said is still read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config.base import from_data, read_config
from ludus.core.errors import ConfigError
from tests.config.older import as_version_5

CONFIGS = Path(__file__).parents[2] / "configs"
KINDS = sorted(path.stem for path in CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_version_5_means_what_it_meant(name: str) -> None:
    config = ludus.example(name)
    assert from_data(as_version_5(config), source="old.yaml") == config


@pytest.mark.parametrize(
    ("kind", "old", "new", "value"),
    [
        ("ppo", "epochs.max_env_steps", "max_env_steps", 200_000),
        ("ppo", "epochs.evaluate_every_epochs", "evaluate_every_epochs", 4),
        ("ppo", "epochs.max_opts", "max_opt_steps", 200),
        ("ppo", "save_freq", "keep_every_epochs", 4),
        ("fused_dqn", "evaluation.max_steps", "evaluation.max_turns", 4),
    ],
)
def test_a_name_of_version_5_is_accepted_and_told(
    kind: str, old: str, new: str, value: object, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config: Any = ludus.example(kind)
    changed = config.replace(**{old: value})
    assert changed[new] == changed[old] == value
    assert capsys.readouterr().err == f"ludus: '{old}' is called '{new}' now\n"
    path = tmp_path / "own.yaml"
    path.write_text(config.to_yaml())
    assert read_config(path, [f"{old}={value}"])[new] == value


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("fused_ppo-connect-four", "max_steps"), ("fused_dqn", "max_opts"), ("supervised", "eval_freq"),
        ("fused_ppo", "max_opts"), ("ppo", "epochs"),
    ],
)  # fmt: skip
def test_a_name_that_another_family_had_is_not_taken_for_a_key_of_another_meaning(
    kind: str, given: str
) -> None:
    with pytest.raises(ConfigError, match=rf"'{given}' is not a key of this config\. Known: "):
        ludus.example(kind).replace(**{given: 5})


def test_an_agent_with_a_replay_buffer_keeps_its_two_sections() -> None:
    config = ludus.example("dqn-mountaincar").replace(**{"epochs.max_env_steps": 130_000})
    assert config.epochs.max_env_steps == 130_000
    with pytest.raises(ConfigError, match=r"'epochs' is null.*'steps.max_opt_steps' decides that"):
        ludus.example("dqn").replace(**{"epochs.max_env_steps": 5})
