"""Version 6 has the keys of every family in the same places: what version 5 said is still read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config import strict_yaml
from ludus.config.base import from_data, read_config
from ludus.config.migrations import migrate
from ludus.core.errors import ConfigError
from ludus.fit.watchers import make_judge
from ludus.judge.scores import Score
from tests.config.older import as_version_5

CONFIGS = Path(__file__).parents[2] / "configs"
KINDS = sorted(path.stem for path in CONFIGS.glob("*.yaml"))


@pytest.mark.parametrize("name", KINDS)
def test_a_file_of_version_5_means_what_it_meant(name: str) -> None:
    config = ludus.example(name)
    assert from_data(as_version_5(config), source="old.yaml") == config


@pytest.mark.parametrize("name", ["stream", "stream-datacenter"])
def test_a_file_that_holds_a_whole_file_is_migrated_with_it(name: str) -> None:
    data = strict_yaml.parse((CONFIGS / "stream" / f"{name}.yaml").read_text(), source="x")
    old = as_version_5(data)
    assert "with_validation" in str(old)
    assert "with_validation" not in str(data)
    assert migrate(old, source="x")[0] == data


@pytest.mark.parametrize(
    ("kind", "old", "new", "value"),
    [
        ("ppo", "epochs.max_env_steps", "max_env_steps", 200_000),
        ("ppo", "epochs.evaluate_every_epochs", "evaluate_every_epochs", 4),
        ("ppo", "epochs.max_opts", "max_opt_steps", 200),
        ("ppo", "save_freq", "keep_every_epochs", 4),
        ("supervised", "early_stopping.patience", "evaluation.patience", 4),
        ("supervised", "best_model.keep", "evaluation.keep", 4),
        ("supervised", "saving_metric", "evaluation.metric", "train/epoch_loss"),
        ("active", "early_stopping.min_delta", "evaluation.min_delta", 0.25),
        ("fused_dqn", "evaluation.max_steps", "evaluation.max_turns", 4),
        ("fused_dqn", "evaluation.games", "evaluation.episodes", 4),
        ("fused_ppo", "evaluation.games", "evaluation.episodes", 4),
        ("vanilla_ppo", "evaluation.rollouts", "evaluation.episodes", 4),
        ("vanilla_ppo", "rl.use_shared_body", "rl.shared_body", False),
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
    assert read_config(path, [f"{old}={json.dumps(value)}"])[new] == value


STOPPING = {"metric": "train/epoch_loss", "mode": None, "patience": 3, "min_delta": 0.5}
BEST = {"metric": "validation/epoch_accuracy", "mode": "max", "keep": 2}


@pytest.mark.parametrize("early_stopping", [None, STOPPING, {**STOPPING, "metric": BEST["metric"]}])
@pytest.mark.parametrize("best_model", [None, BEST])
@pytest.mark.parametrize("kind", ["supervised", "active"])
def test_both_sections_of_version_5_mean_in_a_file_and_in_a_script_what_they_meant(
    kind: str, early_stopping: Any, best_model: Any
) -> None:
    """Whichever of them a script changes first."""
    sections = {"early_stopping": early_stopping, "best_model": best_model}
    data = as_version_5(ludus.example(kind)) | sections
    found = [
        from_data(data, source="old.yaml"),
        ludus.example(kind, **sections),
        ludus.example(kind, **dict(reversed(sections.items()))),
    ]
    for config in found:
        judge = make_judge(config)  # type: ignore[arg-type]
        scores = {score.name: score for score in judge.scores}
        assert set(scores) == {name for name, section in sections.items() if section}
        for name, section in sections.items():
            if section:
                expected = Score("x", section["metric"], section["mode"])
                assert (scores[name].metric, scores[name].mode) == (expected.metric, expected.mode)
        if best_model:
            assert (scores["best_model"].keep, scores["best_model"].patience) == (2, None)
        if early_stopping:
            kept = scores["early_stopping"]
            assert (kept.patience, kept.min_delta, kept.keeps_best) == (3, 0.5, False)


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ("with_validation=false", {"evaluate_every_epochs": 0}),
        ("early_stopping=null", {"evaluation.patience": None}),
        ("best_model=null", {"evaluation.keep": 0}),
        # What the other of the two sections said stays as it was.
        ("best_model.metric=train/epoch_loss", {
            "evaluation.metric": "train/epoch_loss", "evaluation.keep": 1, "evaluation.patience": 10,
            "evaluation.stopping_metric": "validation/epoch_loss"}),
        ("early_stopping.metric=train/epoch_loss", {
            "evaluation.metric": "validation/epoch_loss", "evaluation.keep": 1,
            "evaluation.stopping_metric": "train/epoch_loss"}),
    ],
)  # fmt: skip
def test_a_value_of_version_5_is_converted(
    given: str, changed: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(ludus.example("supervised").to_yaml())
    config: Any = read_config(path, [given])
    assert {key: config[key] for key in changed} == changed
    assert "is called 'eval" in capsys.readouterr().err


def test_a_target_stays_where_a_section_of_version_5_is_set_to_null() -> None:
    config: Any = ludus.example("supervised", **{"evaluation.target": 0.1, "evaluation.keep": 0})
    for name in ("early_stopping", "best_model"):
        changed = config.replace(**{name: None}).evaluation
        assert (changed.metric, changed.keep, changed.target) == (config.evaluation.metric, 0, 0.1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"with_validation": 2}, "'with_validation' was true or false; 'evaluate_every_epochs' is a"),
        ({"early_stopping": True}, "'early_stopping' was null or a section with metric, mode, patience"),
        ({"best_model": {"metric": "x"}}, "'best_model' was null or a section with metric, mode, keep"),
    ],
)  # fmt: skip
def test_a_value_that_version_5_did_not_have_is_refused(given: dict[str, Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        ludus.example("supervised", **given)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"stopping_metric": "train/loss", "patience": None}, "'stopping_metric' is train/loss, which has"),
        ({"stopping_mode": "min"}, "'stopping_mode' is min, but 'stopping_metric' is null, so"),
        ({"patience": None, "min_delta": 0.5}, "'min_delta' is 0.5, which has no effect where 'patience'"),
    ],
)  # fmt: skip
def test_a_key_of_an_evaluation_without_effect_is_refused(
    changes: dict[str, Any], told: str
) -> None:
    section = {f"evaluation.{key}": value for key, value in changes.items()}
    with pytest.raises(ConfigError, match=f"'evaluation': {told}"):
        ludus.example("supervised", **section)


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
