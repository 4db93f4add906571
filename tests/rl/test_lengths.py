"""A length that is given is obeyed, and what it changes besides is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config import migrations, strict_yaml
from ludus.config.base import change, current, from_data, read_config
from ludus.config.overrides import key_paths
from ludus.core.errors import ConfigError, RunError
from ludus.store.directory import deciding
from tests.command_line import in_process
from tests.config.older import as_version_4, as_version_5
from tests.keys.runs import tiny
from tests.rl.small import small
from tests.supervised.conftest import lines

EPOCHS = {
    "max_env_steps": 60, "log_every_epochs": 1, "evaluate_every_epochs": 3, "keep_every_epochs": 0,
    "steps_per_epoch": 2,
    "updates_per_env_step": 0.7, "max_opt_steps": None,
}  # fmt: skip
PLANS: dict[str, tuple[str, dict[str, Any]]] = {
    "dqn in steps": ("dqn", {}),
    "sac in steps": ("sac", {}),
    "iqn in epochs": ("iqn", {"counted_in": "epochs", "epochs": EPOCHS}),
    "ppo": ("ppo", {}),
}


@pytest.mark.covers("000-M4")
@pytest.mark.parametrize("count", [1, 13, 96])
@pytest.mark.parametrize(("kind", "changes"), PLANS.values(), ids=PLANS.keys())
def test_max_steps_are_the_optimisation_steps_of_every_plan(
    tmp_path: Path, kind: str, changes: dict[str, Any], count: int
) -> None:
    trainer: Any = ludus.build_trainer(small(kind, **changes))
    result = trainer.fit(max_steps=count, root=str(tmp_path))
    assert result.counters["opt_steps"] == trainer.num_train_steps == count
    assert (result.status, result.exact) == ("finished", "expected")
    # The length is in the resolved config, so that a resume needs no argument.
    assert read_config(f"{result.run_dir}/config.yaml") == trainer.config
    assert trainer.config.run_opts == count


def test_steps_given_to_fit_are_made_even_where_a_kl_divergence_ends_the_passes(
    tmp_path: Path,
) -> None:
    trainer: Any = ludus.build_trainer(small("ppo", target_kl=1e-9))
    assert trainer.fit(max_steps=40, root=str(tmp_path)).counters["opt_steps"] == 40


@pytest.mark.parametrize("kind", ["ppo", "supervised"])
def test_a_script_may_make_a_run_longer_than_what_compile_auto_goes_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """What auto was resolved to when the run began holds for all of it."""
    monkeypatch.setattr("ludus.rl.agents.ppo.Ppo.worth_compiling", 20)
    monkeypatch.setattr("ludus.fit.update.ModelUpdate.worth_compiling", 20)
    changed = {"evaluate_every_epochs": 0} if kind == "ppo" else {"max_epochs": 2}
    config = tiny(kind, engine="auto", **changed)
    ludus.build_trainer(config).fit(max_steps=6, root=str(tmp_path), name="run")
    longer: Any = ludus.build_trainer(config)
    result = longer.fit(max_steps=24, root=str(tmp_path), name="run", resume=True)
    assert (result.counters["opt_steps"], longer.config.engine) == (24, "tape")


def test_what_a_short_fit_of_version_5_turned_off_stays_off(tmp_path: Path) -> None:
    """Its events name the key as that version did."""
    config = small("ppo")
    ludus.build_trainer(config).fit(max_steps=6, root=str(tmp_path), name="run")
    events, file = tmp_path / "run" / "events.jsonl", tmp_path / "run" / "config.yaml"
    told = events.read_text().replace("evaluate_every_epochs", "epochs.evaluate_every_epochs")
    assert '{"epochs.evaluate_every_epochs": 0}' in told
    events.write_text(told)
    file.write_text(strict_yaml.dump(as_version_5(read_config(file))))
    longer: Any = ludus.build_trainer(config)
    longer.fit(max_steps=24, root=str(tmp_path), name="run", resume=True)
    assert longer.config.evaluate_every_epochs == 0


@pytest.mark.covers("000-M3")
@pytest.mark.parametrize("kind", ["dqn", "ppo"])
def test_what_a_short_fit_never_comes_to_is_told_and_resolved(tmp_path: Path, kind: str) -> None:
    quiet = {"settings.display": "plain", "settings.loggers": []}
    config = ludus.example(kind, **quiet)
    result = ludus.build_trainer(config).fit(max_steps=96, root=str(tmp_path))
    assert result.counters["opt_steps"] == 96
    told = [
        e["reason"] for e in lines(result.run_dir, "events.jsonl") if e["event"] == "changed_by_fit"
    ]
    resolved: Any = read_config(f"{result.run_dir}/config.yaml")
    if kind == "dqn":
        expected = [
            "'steps.evaluate_every_opt_steps' is 0 rather than 500",
            "'steps.log_every_opt_steps' is 0 rather than 500",
        ]
        assert (resolved.steps.evaluate_every_opt_steps, resolved.steps.log_every_opt_steps) == (
            0,
            0,
        )
    else:
        # Ten epochs of ten updates: a record is still made of each second one, an evaluation in the last.
        expected = []
        assert (resolved.evaluate_every_epochs, resolved.log_every_epochs) == (8, 2)
    if kind == "dqn":
        expected.append("'evaluation.target' is null rather than 475.0")
        assert resolved.evaluation.target is None
    assert told == [f"for fit(max_steps=96) {text}" for text in expected]


RARE = {**EPOCHS, "log_every_epochs": 9, "evaluate_every_epochs": 8, "keep_every_epochs": 7}
CHANGED: dict[str, Any] = {
    **{f"{kind} in steps": small(kind) for kind in ("dqn", "iqn", "sac")},
    **{
        f"{kind} in epochs": small(kind, counted_in="epochs", epochs=RARE)
        for kind in ("dqn", "iqn", "sac")
    },
    "ppo": small("ppo"),
    "ppo with a limit": small("ppo", max_opt_steps=20, target_kl=1e-9),
    "supervised": tiny("supervised"),
}


@pytest.mark.covers("000-M3")
@pytest.mark.parametrize("count", [1, 60])
@pytest.mark.parametrize("name", CHANGED)
def test_every_key_that_fit_changes_besides_the_length_is_told(
    tmp_path: Path, name: str, count: int
) -> None:
    config = CHANGED[name]
    trainer: Any = ludus.build_trainer(config)
    result = trainer.fit(max_steps=count, root=str(tmp_path))
    before, after = deciding(config), deciding(trainer.config)
    changed = {path for path in key_paths(after) if value(before, path) != value(after, path)}
    events = [e for e in lines(result.run_dir, "events.jsonl") if e["event"] == "changed_by_fit"]
    told = {event["reason"].split("'")[1] for event in events}
    lengths = {"steps.max_opt_steps", "epochs.max_opt_steps", "max_opt_steps"}
    # What `engine: auto` was resolved to is no change of fit's.
    assert changed - lengths - {"engine", "memory_format", "steps", "epochs"} == told
    assert told or count == 60 or name == "supervised"


def value(data: Any, path: str) -> Any:
    for part in path.split("."):
        data = data[part]
    return data


def test_what_fit_changes_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = small("dqn", **{"settings.display": "plain"})
    ludus.build_trainer(config).fit(max_steps=6, root=str(tmp_path))
    shown = " ".join(capsys.readouterr().out.split())
    assert "for fit(max_steps=6) 'steps.evaluate_every_opt_steps' is 0 rather than 7" in shown
    assert "for fit(max_steps=6) 'steps.keep_every_opt_steps' is 0 rather than 11" in shown


def test_a_run_of_no_steps_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="max_steps=0; a run has one step at least"):
        ludus.build_trainer(small("ppo")).fit(max_steps=0, root=str(tmp_path))


@pytest.mark.parametrize(
    ("name", "given", "told"),
    [
        ("dqn", "max_env_steps", "not a key of this config. Here 'steps.max_opt_steps' decides that, in opt"),
        ("sac", "evaluate_every_epochs",
            "not a key of this config. Here 'steps.evaluate_every_opt_steps' decides that, in opt"),
        ("iqn", "epochs.max_env_steps", "'epochs' is null, .* Here 'steps.max_opt_steps' decides that"),
        ("dqn", "max_steps", "Did you mean 'steps.max_opt_steps'?"),
        ("ppo", "max_steps", "Did you mean 'max_opt_steps'?"),
        ("dqn-mountaincar", "evaluate_every_opt_steps",
            "Here 'epochs.evaluate_every_epochs' decides that, in epochs"),
        ("dqn-mountaincar", "steps.max_opt_steps",
            "'steps' is null, .* Did you mean 'epochs.max_opt_steps'?"),
        ("ppo", "num_train_steps", "Did you mean 'max_opt_steps'?"),
    ],
)  # fmt: skip
def test_a_key_that_this_schedule_does_not_read_is_refused_with_the_one_it_reads(
    name: str, given: str, told: str
) -> None:
    data = ludus.example(name).model_dump()
    with pytest.raises(ConfigError, match=told.replace("?", r"\?")):
        change(data, [f"{given}=5000"], source="my.yaml")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("max_env_steps=5000", "one for 2 env steps after the first 1000: write steps.max_opt_steps=2000."),
        ("total_timesteps=1003", "write steps.max_opt_steps=1."),
        ("max_env_steps=1000", "in optimisation steps, one for 2 env steps after the first 1000."),
    ],
)  # fmt: skip
def test_a_length_in_env_steps_is_told_as_the_number_of_optimisation_steps(
    given: str, told: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        change(ludus.example("iqn").model_dump(), [given], source="my.yaml")
    assert str(refused.value).endswith(told)
    assert "Here 'steps.max_opt_steps' decides that" in str(refused.value)


_STEPS = "steps.evaluate_every_opt_steps (was {}), steps.log_every_opt_steps (was 500)"
_STEPS += ", evaluation.target (was 475.0)"
SHORT = {
    "dqn": ("steps.max_opt_steps=400", _STEPS.format(500)),
    "iqn": ("steps.max_opt_steps=400", _STEPS.format(1000)),
    "sac": ("steps.max_opt_steps=300", "steps.evaluate_every_opt_steps (was 1000)"),
    "ppo": ("max_env_steps=500",
        "evaluate_every_epochs (was 8), evaluation.target (was 475.0)"),
    "ppo-pendulum": ("max_opt_steps=160",
        "evaluate_every_epochs (was 8), log_every_epochs (was 2)"),
    "dqn-mountaincar": ("epochs.max_env_steps=4000", "epochs.evaluate_every_epochs (was 750)"),
}  # fmt: skip


@pytest.mark.parametrize("name", SHORT)
def test_a_run_shortened_on_the_command_line_does_without_what_it_never_comes_to(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given, off = SHORT[name]
    path = tmp_path / "my.yaml"
    path.write_text(ludus.example(name).to_yaml())
    call = in_process(monkeypatch, capsys)
    told = call("plan", str(path), given)
    assert told.code == 0, told.err
    assert "evaluate (never)" in told.out
    ends = f"{given.partition('=')[0]} on the command line ends the run before these are due"
    assert told.err == f"ludus: {ends}, so they are off: {off}\n"
    interval = off.partition(" ")[0]
    explained = call("explain", str(path), interval, given).out
    assert f"{interval} = 0  (from the command line)" in explained
    # A script is warned, where it does not ask to be told otherwise.
    with pytest.warns(UserWarning, match="so they are off"):
        read_config(path, [given])


def test_an_interval_longer_than_the_run_is_refused_where_it_was_given_so(tmp_path: Path) -> None:
    path = tmp_path / "my.yaml"
    path.write_text(ludus.example("dqn").to_yaml())
    both = ["max_opt_steps=400", "evaluate_every_opt_steps=500", "log_every_opt_steps=0"]
    said = (
        "the command line: 'steps.evaluate_every_opt_steps' is 500, but steps.max_opt_steps is 400"
    )
    with pytest.raises(ConfigError, match=said):
        read_config(path, both)
    path.write_text(
        path.read_text().replace("evaluate_every_opt_steps: 500", "evaluate_every_opt_steps: 40000")
    )
    with pytest.raises(ConfigError, match=r"my\.yaml: 'steps.evaluate_every_opt_steps' is 40000"):
        read_config(path, ["seed=3"])


@pytest.mark.parametrize("schedule", ["steps", "epochs"])
def test_an_older_file_with_both_schedules_is_read_as_it_was_followed(schedule: str) -> None:
    """Whatever else it held that nothing read is silent now: the file is valid, and means the same."""
    name, other = ("dqn", "epochs") if schedule == "steps" else ("dqn-mountaincar", "steps")
    data = as_version_4(ludus.example(name)) | {"version": 1}
    theirs = ludus.example("dqn" if other == "steps" else "dqn-mountaincar")
    data[other] = as_version_4(theirs)[other]
    data["epochs"].pop("max_opts")
    data["evaluation"] |= {"timeout_seconds": 600.0, "min_delta": 2.0}
    data["settings"]["checkpoint"]["every_epochs"] = 3
    read = from_data(data, source="old.yaml")
    expected = ludus.example(name)
    if schedule == "epochs":
        expected = expected.replace(**{"settings.checkpoint.every_epochs": 3})
    assert read == expected
    data |= as_version_4(ludus.example(name)) | {"version": 1}
    data[schedule]["eval_interval" if schedule == "steps" else "eval_freq"] = 0
    data["evaluation"] |= {"patience": 3, "target_return": 9.0}
    silent: Any = from_data(data, source="old.yaml")
    assert (silent.evaluation.patience, silent.evaluation.target) == (None, None)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("name", ["dqn", "dqn-mountaincar", "iqn", "sac", "ppo"])
def test_the_names_that_keys_had_in_older_files_are_read_as_those_of_now(
    name: str, version: int
) -> None:
    data = as_version_4(ludus.example(name))
    old = {"counted_in": "schedule", "learning_rate_schedule": "learning_rate"}
    renamed = {old.get(key, key): value for key, value in data.items()} | {"version": version}
    assert from_data(renamed, source="old.yaml") == ludus.example(name)


def test_a_key_that_only_shares_an_older_name_is_left_as_it_is() -> None:
    own = {
        "version": migrations.VERSION,
        "schedule": "steps",
        "learning_rate": {"kind": "x", "warmup_steps": 1},
    }
    assert migrations.migrate(dict(own), source="own.yaml") == (own, [])


def test_an_older_file_loses_what_one_key_kept_another_from_doing() -> None:
    data = as_version_4(ludus.example("sac")) | {"version": 1}
    data["temperature"] |= {"learned": False, "target_entropy": -2.0}
    data["normalise"] = {"observations": False, "rewards": False, "clip": 5.0}
    data["optimizer"] = {
        "kind": "sgd", "learning_rate": 0.1, "momentum": 0.0, "nesterov": True, "weight_decay": 0.0
    }  # fmt: skip
    read = current(data, source="old.yaml")
    assert read["temperature"]["target_entropy"] is None
    assert read["normalise"] is None
    assert read["optimizer"]["nesterov"] is False
    from_data(data, source="old.yaml")


def test_a_length_that_a_run_has_passed_is_refused_and_nothing_changes(tmp_path: Path) -> None:
    done = ludus.build_trainer(small("ppo")).fit(root=str(tmp_path), name="run")
    config = (tmp_path / "run" / "config.yaml").read_bytes()
    assert done.counters["opt_steps"] > 24
    with pytest.raises(RunError, match=r"'max_opt_steps' is to be 24, but .* opt_steps already"):
        ludus.build_trainer(small("ppo")).fit(24, root=str(tmp_path), name="run", resume=True)
    assert (tmp_path / "run" / "config.yaml").read_bytes() == config
    assert ludus.build_trainer(small("ppo")).fit(root=str(tmp_path), name="run", resume=True).exact
