"""Every command as a user runs it: what it prints, how it ends, and one sentence for every mistake."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.config.base import read_config
from ludus.config.migrations import VERSION
from tests.command_line import Ludus, in_process, in_subprocess, small_config, small_file


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    """The command, called from an empty directory."""
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


@pytest.fixture
def config(tmp_path: Path) -> str:
    return small_file(tmp_path / "small.yaml")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of one finished run, `small`, which nobody may change."""
    root = tmp_path_factory.mktemp("finished")
    ludus.build_trainer(small_config()).fit(root=str(root))
    return root


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> Path:
    """A finished run that may be changed."""
    shutil.copytree(finished / "small", tmp_path / "runs" / "small")
    return tmp_path / "runs" / "small"


# What the commands print


def test_new_prints_a_complete_config_that_plan_and_train_take_from_a_pipe(
    call: Ludus, tmp_path: Path
) -> None:
    text = call("new", "supervised").out
    assert text.startswith("#")
    (tmp_path / "mine.yaml").write_text(text)
    assert read_config("mine.yaml") == ludus.example("supervised")
    assert call("plan", "-", stdin=text).out.startswith("train\n")


def test_new_without_a_kind_lists_the_kinds_and_the_other_files(call: Ludus) -> None:
    told = call("new")
    assert told.code == 0
    kinds, others = told.out.split("and these are complete configs too")
    rows = [line.split() for line in kinds.splitlines() if line.startswith("  ")]
    assert [row[0] for row in rows] == ludus.TrainerType.names()
    about = "Supervised learning: classify handwritten digits with a small network."
    assert f"  supervised                {about}\n" in kinds
    for name in ("dqn-acrobot", "stream-edge", "vanilla_ppo-pettingzoo"):
        assert f"\n  {name} " in others


def test_who_waits_at_a_terminal_sees_at_once_that_something_is_loaded(
    call: Ludus, monkeypatch: pytest.MonkeyPatch
) -> None:
    for command in ("train", "resume"):
        assert "loading" not in call(command, "nowhere.yaml").err
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for command in ("train", "resume"):
        assert call(command, "nowhere.yaml").err.startswith("ludus: loading torch and nowhere.yaml")


def test_train_as_json_prints_one_object_and_nothing_else(call: Ludus, config: str) -> None:
    told = call("train", config, "settings.display=plain", "--json")
    result = told.json
    assert result["run_dir"] == "runs/small"
    assert result["status"] == "finished"
    assert result["reason"] is None
    assert result["counters"]["epoch"] == 2
    assert result["counters"]["opt_steps"] == 4
    assert 0 <= result["best_score"] <= 1
    assert result["best"]["score"] == result["best_score"]
    assert result["exact"] == "expected"
    assert result["inexact_because"] == []
    # The display is not lost: it goes where it disturbs no program.
    assert "epoch" in told.err


def test_train_tells_people_how_it_ended_and_what_to_do_next(call: Ludus, config: str) -> None:
    root = "a-rather-long-root-" * 5 + "[bold]"
    told = call("train", config, "--root", root, "--run", "mine")
    lines = told.out.splitlines()
    assert lines[0] == "finished"
    assert lines[1].startswith("best validation/epoch_accuracy 0.")
    assert f" in {root}/mine/models/best-" in lines[1]
    assert lines[2] == f"next: ludus report '{root}/mine'"
    assert Path(root, "mine", "run.json").is_file()


def test_a_run_directory_holds_the_resolved_config(call: Ludus, config: str) -> None:
    call("train", config, "learning_rate=0.5", "--json")
    resolved: Any = read_config("runs/small/config.yaml")
    assert resolved.optimizer.learning_rate == 0.5
    assert resolved.engine == "tape"


def test_plan_prints_the_tree_and_does_none_of_it(call: Ludus, config: str, tmp_path: Path) -> None:
    tree = call("plan", config, "max_epochs=7").out
    assert tree.splitlines()[:2] == ["train", "  epoch x 7"]
    assert "\n      train_step\n" in tree
    assert "validate" in tree
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_explain_says_meaning_value_and_source(call: Ludus, config: str) -> None:
    told = call("explain", config, "batch_size", "settings.device", "batch_size=8").out
    assert told == (
        f"settings.device = cpu  (from {config})\n"
        "    Where to compute: cpu, cuda, cuda:1, or auto for the best this machine has.\n"
        "batch_size = 8  (from the command line)\n"
        "    How many examples each batch holds; a loader of your own keeps its own size.\n"
    )


def test_explain_of_everything_explains_every_key(call: Ludus, config: str) -> None:
    told = call("explain", config, "settings.loggers=[{kind: csv}]").out
    names = [line.split(" = ")[0] for line in told.splitlines() if not line.startswith("    ")]
    assert {"version", "optimizer", "optimizer.beta1", "settings.checkpoint.keep_last"} <= {*names}
    assert "settings.loggers.0.kind = csv  (from the command line)" in told
    assert len(told.splitlines()) == 2 * len(names)
    assert "    \n" not in told


def test_explain_knows_which_key_an_override_changed(call: Ludus, config: str) -> None:
    told = call("explain", config, "kind", "kind=supervised", "data.kind=wine").out
    assert "\nmodel.kind = mlp  (from " + config in told
    assert "\ndata.kind = wine  (from the command line)" in told
    assert told.startswith("kind = supervised  (from the command line)")
    sgd = "optimizer={kind: sgd, learning_rate: 0.1, momentum: 0, nesterov: false, weight_decay: 0}"
    told = call("explain", config, "optimizer", sgd).out
    assert told.count("(from the command line)") == 5
    told = call("explain", config, "device", "settings__device=auto").out
    assert "settings.device = auto  (from the command line)" in told


def test_explain_tells_the_values_that_a_key_may_have(call: Ludus, config: str) -> None:
    told = call("explain", config, "settings.display", "evaluation.mode").out
    assert " One of: auto, rich, minimal, plain, none.\n" in told
    assert " One of: min, max, null.\n" in told
    assert "One of" not in call("explain", config, "batch_size", "name").out
    Path("ppo.yaml").write_text(ludus.example("vanilla_ppo").to_yaml())
    told = call("explain", "ppo.yaml", "force_guess", "loss_critic_type").out
    assert " One of: zero, one, y, null.\n" in told
    assert " One of: smooth_l1, l2, l1, null.\n" in told
    Path("dqn.yaml").write_text(ludus.example("dqn").to_yaml())
    told = call("explain", "dqn.yaml", "replay.prioritised.normalise").out
    assert "replay.prioritised.normalise  (not set: replay.prioritised is null)\n" in told
    assert " One of: all, batch.\n" in told


def test_explain_tells_the_other_kinds_that_a_section_may_be_of(call: Ludus, config: str) -> None:
    told = call("explain", config, "kind", "settings.loggers=[{kind: csv}]").out.splitlines()
    meanings = {
        key.split(" ")[0]: meaning for key, meaning in zip(told[::2], told[1::2], strict=True)
    }
    assert " Other kinds: active, " in meanings["kind"]
    assert (
        " Other kinds: breast_cancer, csv, diabetes, digits, huggingface, " in meanings["data.kind"]
    )
    assert ", sgd" in meanings["optimizer.kind"]
    assert meanings["settings.loggers.0.kind"].endswith(
        " Other kinds: console, jsonl, mlflow, tensorboard, wandb."
    )


def test_explain_takes_a_former_name_and_tells_todays(call: Ludus, config: str) -> None:
    told = call("explain", config, "early_stopping.patience", "with_validation")
    assert "evaluation.patience = 9 " in told.out
    assert "evaluate_every_epochs = 1 " in told.out
    assert "'with_validation' is called 'evaluate_every_epochs' now" in told.err


def test_explain_shows_what_a_null_section_would_hold(call: Ludus, config: str) -> None:
    Path("ppo.yaml").write_text(ludus.example("ppo").to_yaml())
    told = call("explain", "ppo.yaml", "normalise").out
    assert "normalise = null" in told
    assert "normalise.clip  (not set: normalise is null)\n" in told


@pytest.mark.parametrize(
    ("key", "told"),
    [
        ("normalise.x", "normalise is null; it would have: observations, rewards, clip"),
        ("normalise.clip.x", "normalise is null"),
        ("evaluation.env.kind", "evaluation.env is null"),
    ],
)
def test_explain_says_of_a_key_below_a_null_section_that_the_section_is_null(
    call: Ludus, key: str, told: str
) -> None:
    Path("ppo.yaml").write_text(ludus.example("ppo").to_yaml())
    assert call("explain", "ppo.yaml", key).refusal() == (
        f"'{key}' is not a key of this config: {told}"
    )


def test_explain_names_the_kinds_of_a_section_that_is_not_there(call: Ludus) -> None:
    Path("dqn.yaml").write_text(ludus.example("dqn").to_yaml())
    told = call("explain", "dqn.yaml", "replay.prioritised.beta_schedule.final").refusal()
    assert "replay.prioritised is null, and the keys of 'replay.prioritised.beta_schedule'" in told
    assert told.endswith("inverse, linear, one_cycle, piecewise, plateau, warm_restarts")


def test_explain_refuses_a_key_that_is_not_there(call: Ludus, config: str) -> None:
    assert "Did you mean 'batch_size'?" in call("explain", config, "batchsize").refusal()


@pytest.mark.usefixtures("run")
def test_runs_lists_each_run_and_how_it_ended(call: Ludus, tmp_path: Path) -> None:
    (tmp_path / "runs" / "notes").mkdir()
    killed = tmp_path / "runs" / "killed"
    shutil.copytree(tmp_path / "runs" / "small", killed)
    started = (killed / "events.jsonl").read_text().splitlines()[0]
    (killed / "events.jsonl").write_text(started + "\n")
    rows = {row["name"]: row for row in call("runs", "--json").json["runs"]}
    assert set(rows) == {"small", "killed"}
    assert rows["killed"]["status"] == "killed"
    small = rows["small"]
    assert (small["kind"], small["status"], small["exact"]) == (
        "supervised",
        "finished",
        "expected",
    )
    assert small["counters"]["epoch"] == 2
    assert small["best_metric"] == "validation/epoch_accuracy"
    assert 0 <= small["best_score"] <= 1
    table = call("runs").out.splitlines()
    assert len(table) == 3
    assert any("small" in line and "finished" in line and "epoch 2" in line for line in table)


@pytest.mark.parametrize("root", ["nowhere", "small.yaml"])
@pytest.mark.usefixtures("config")
def test_runs_of_an_empty_root_says_how_to_make_one(call: Ludus, root: str) -> None:
    assert (
        call("runs", "--root", root).out == f"no runs in {root}; `ludus train CONFIG` makes one\n"
    )
    assert call("runs", "--root", root, "--json").json == {"root": root, "runs": []}


def test_eval_measures_the_best_model_on_the_test_data(call: Ludus, run: Path) -> None:
    told = call("eval", str(run), "--json").json
    assert told["run_dir"] == str(run)
    assert told["model"] == told["best"]["model"]
    assert told["status"] == "finished"
    assert told["exact"] == "expected"
    lines = (run / "metrics.jsonl").read_text().splitlines()
    tested = {k: v for k, v in json.loads(lines[-1]).items() if k.startswith("test/")}
    assert tested
    assert told["metrics"] == pytest.approx(tested, abs=1e-6)
    last = call("eval", str(run), "--model", "last", "--json").json
    assert last["model"].startswith("checkpoint ")
    assert "trained on data, not in episodes" in call("eval", str(run), "--seed", "3").refusal()
    shown = call("eval", str(run)).out
    assert shown.startswith(f"{run}: {told['model']}\n")
    assert "  test/" in shown


def test_eval_without_a_best_model_takes_the_last_weights(call: Ludus, tmp_path: Path) -> None:
    path = small_file(
        tmp_path / "a.yaml", evaluation__keep=0, evaluation__patience=None, max_epochs=1
    )
    call("train", path, "--json")
    told = call("eval", "runs/small", "--json").json
    assert told["best"] is None
    assert told["model"].startswith("checkpoint ")
    assert told["metrics"]


def test_report_writes_a_page_and_prints_where(call: Ludus, run: Path, tmp_path: Path) -> None:
    assert Path(call("report", str(run)).out.strip()).read_text().startswith("<!DOCTYPE html>")
    assert (run / "report.html").is_file()
    assert call("report", str(run), "--out", "page.html").code == 0
    assert (tmp_path / "page.html").is_file()


def test_migrate_leaves_a_current_file_as_it_is(call: Ludus, config: str) -> None:
    told = call("migrate", config)
    assert told.out == Path(config).read_text()
    assert f"is at version {VERSION} already" in told.err
    assert call("migrate", config, "--write").out == ""
    assert Path(config).read_text() == told.out


def test_migrate_leaves_a_file_with_a_base_as_short_as_it_is(call: Ludus, tmp_path: Path) -> None:
    path = tmp_path / "short.yaml"
    path.write_text(f"version: {VERSION}\nbase: ppo  # and only what differs\nseed: 3\n")
    before = path.read_text()
    assert f"is at version {VERSION} already" in call("migrate", str(path), "--write").err
    assert call("migrate", str(path)).out == before == path.read_text()


def test_a_run_below_runs_may_be_called_by_its_name(call: Ludus, config: str) -> None:
    assert call("train", config, "max_epochs=1", "--run", "short").code == 0
    assert call("eval", "short", "--model", "last").code == 0
    assert call("resume", "short").code == 0
    assert "shor is not a run directory" in call("eval", "shor").refusal()


def test_doctor_says_what_this_machine_can_do(call: Ludus) -> None:
    told = call("doctor")
    assert told.code == 0
    assert torch.__version__ in told.out
    for what in ("python", "cpu", "engines        eager, tape on the cpu", "disk", "display"):
        assert f"\nok   {what}" in f"\n{told.out}"
    assert torch.cuda.is_available() or "\nnote engine graph   none: it needs a CUDA" in told.out
    assert "engine compiled works on cpu" in told.out
    by = (
        "Triton kernels on cuda"
        if torch.cuda.is_available()
        else "plain PyTorch: Triton kernels need"
    )
    assert f"games          stepped by {by}" in told.out
    rounds = by.removesuffix(" on cuda")
    assert (
        "\nok   fused_ppo" in told.out
        or f"fused_ppo      its rounds are made in {rounds}" in told.out
    )
    rounds = "captured as CUDA graphs" if torch.cuda.is_available() else "called: CUDA graphs need"
    assert f"fused_dqn      its rounds are {rounds}" in told.out


def test_doctor_says_what_an_engine_lacks(call: Ludus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ludus.nn.engines.compiled.find_cpp", lambda: None)
    assert "engine compiled none: torch's compiler needs g++" in call("doctor").out


def test_migrate_gives_a_key_its_new_name_in_a_file_of_this_version(
    call: Ludus, config: str
) -> None:
    text = Path(config).read_text()
    old = Path(config).with_name("old.yaml")
    old.write_text(text.replace("engine: ", "compile: false # "))
    printed = call("migrate", str(old))
    assert "#" not in printed.out
    assert f"the comments of {old} are left out; --write keeps the old file" in printed.err
    assert old.read_text() != printed.out
    told = call("migrate", str(old), "--write")
    assert (
        f"is at version {VERSION} now (added engine; removed compile); the old file, with its"
        in told.err
    )
    assert "engine: tape" in old.read_text()
    assert "compile: false" in old.with_name(f"old.yaml.v{VERSION}").read_text()


def test_doctor_fails_where_nothing_can_be_written(
    call: Ludus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ludus.cli.doctor.Path.cwd", lambda: Path("/proc"))
    told = call("doctor")
    assert told.code == 1
    assert "bad  disk           /proc cannot be written" in told.out


# Going on


def test_resuming_a_finished_run_does_nothing_and_says_so(call: Ludus, run: Path) -> None:
    before = (run / "metrics.jsonl").read_bytes()
    told = call("resume", str(run), "--json").json
    assert told["status"] == "finished"
    assert told["counters"]["epoch"] == 2
    assert told["run_dir"] == str(run)
    assert (run / "metrics.jsonl").read_bytes() == before


def test_a_finished_run_is_made_longer(call: Ludus, run: Path) -> None:
    told = call("resume", str(run), "max_epochs=3", "--json").json
    assert told["status"] == "finished"
    assert told["counters"]["epoch"] == 3
    assert "max_epochs: 3\n" in (run / "config.yaml").read_text()


def test_settings_may_change_on_resume(call: Ludus, run: Path) -> None:
    told = call("resume", str(run), "settings.loggers=[{kind: csv}]", "max_epochs=3", "--json").json
    assert told["counters"]["epoch"] == 3
    assert (run / "metrics.csv").is_file()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ("batch_size=32", "was started with batch_size 64 (now 32); only the length"),
        ("seed=1", "was started with seed 0 (now 1); only"),
        ("model.widths=[4]", "was started with model.widths [8] (now [4]); only"),
        (
            "evaluation.min_delta=0.5",
            "was started with evaluation.min_delta 0.0 (now 0.5); only",
        ),
        ("max_epochs=0", "'max_epochs' must be greater than or equal to 1"),
        ("max_epoch=3", "Did you mean 'max_epochs'?"),
        ("max_epochs", "'max_epochs' is not an override; write key.path=value"),
        ("settings.device=bogus", "settings.device is 'bogus', which is no device"),
    ],
)
def test_changing_anything_else_on_resume_is_refused(
    call: Ludus, run: Path, change: str, told: str
) -> None:
    before = (run / "config.yaml").read_bytes()
    assert told in call("resume", str(run), change).refusal()
    assert (run / "config.yaml").read_bytes() == before


def test_a_run_is_resumed_from_inside_its_directory(
    call: Ludus, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(run)
    told = call("resume", ".", "max_epochs=3", "--json").json
    assert told["counters"]["epoch"] == 3
    assert not (run / "small").exists()
    monkeypatch.chdir(run / "checkpoints")
    assert call("resume", "..", "max_epochs=4", "--json").json["counters"]["epoch"] == 4


def test_a_run_that_is_not_there_is_told_the_nearest_that_is(call: Ludus, run: Path) -> None:
    for command in ("resume", "report", "eval"):
        told = call(command, "runs/smal").refusal()
        assert told.startswith("runs/smal is not a run directory; `ludus runs` lists")
        assert told.endswith("Did you mean 'runs/small'?")
    assert call("resume", "smal").refusal().startswith("smal is not a run directory")
    assert call("resume", "zzzzzz").refusal().endswith("lists the runs there are")


def test_a_bare_key_is_told_the_nearest_in_any_section(call: Ludus) -> None:
    Path("ppo.yaml").write_text(ludus.example("ppo").to_yaml())
    told = call("plan", "ppo.yaml", "max_env_step=5", "gama=1").refusal().splitlines()
    assert told[1].endswith("Did you mean 'max_env_steps'?")
    assert told[2].endswith("Did you mean 'gamma'?")


def test_a_run_built_by_a_script_says_to_run_the_script(call: Ludus, tmp_path: Path) -> None:
    trainer = ludus.build_trainer(small_config(model=None, max_epochs=1))
    trainer.set_model(torch.nn.Linear(13, 3))
    trainer.fit(root="runs")
    remedies = {"resume": "again with fit(resume=True)", "eval": "give it: --script "}
    for command, remedy in remedies.items():
        told = call(command, "runs/small").refusal()
        assert "was built by a script, which alone knows its model and data" in told
        assert remedy in told


# Names and places of runs


@pytest.mark.parametrize(
    "name",
    ["../x", "a/b", "/tmp/x", "a\nb", "-x", ".x", ".", "..", "x" * 300, "a b", "é", "a\x00b"],
)
def test_a_run_name_that_could_lead_out_of_the_root_is_refused(
    call: Ludus, config: str, tmp_path: Path, name: str
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert "cannot name a run" in call("train", config, f"--run={name}").refusal()
    quoted = f"name={json.dumps(name)}"
    assert "cannot name a run" in call("train", config, quoted).refusal()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_linked_run_directory_is_refused(call: Ludus, config: str, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "link").symlink_to(tmp_path / "elsewhere")
    assert "is a link" in call("train", config, "--run", "link").refusal()
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_linked_run_is_not_resumed_through_the_link(
    call: Ludus, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(run)
    assert "is a link" in call("resume", "link", "max_epochs=3").refusal()


@pytest.mark.usefixtures("run")
def test_an_existing_run_is_refused_with_the_way_out(call: Ludus, config: str) -> None:
    told = call("train", config, "--run", "small").refusal()
    assert "runs/small holds a run already" in told
    assert "`ludus resume runs/small`" in told
    assert "choose another name" in told
    assert call("train", config, "--run", "other", "--json").code == 0


@pytest.mark.parametrize("words", [["train", "small.yaml"], ["runs"]])
def test_a_root_that_ends_with_the_command_is_refused(
    call: Ludus, config: str, words: list[str]
) -> None:
    told = call(*words, "--root", "memory://x").refusal()
    assert "a run in it is gone when the command ends; give a directory, or s3://" in told


def test_a_stream_is_kept_in_a_directory(call: Ludus, tmp_path: Path) -> None:
    told = call("stream", "any.yaml", "--root", "s3://bucket/runs").refusal()
    assert told == "--root s3://bucket/runs is no directory, and a stream keeps its state in one"
    assert not Path("s3:").exists()


@pytest.mark.parametrize("root", ["small.yaml", "small.yaml/deeper"])
def test_a_root_that_cannot_be_a_directory_is_told(call: Ludus, config: str, root: str) -> None:
    assert f"{root}/small cannot be written" in call("train", config, "--root", root).refusal()


def test_a_directory_that_holds_something_else_is_not_touched(
    call: Ludus, config: str, tmp_path: Path
) -> None:
    thesis = tmp_path / "runs" / "small" / "thesis.txt"
    thesis.parent.mkdir(parents=True)
    thesis.write_text("years of work")
    assert "is not a run, yet holds thesis.txt" in call("train", config).refusal()
    assert [path.name for path in thesis.parent.iterdir()] == ["thesis.txt"]


# Mistakes


MISTAKES = {
    "a.b.c=1": "'a.b.c' is not a key of this config. Known: ",
    "=": "'=' is not an override; write key.path=value",
    "settings=3": "'settings' must be a section with keys of its own (found 3)",
    "settings={}": "'settings.device' is missing; it is: Where to compute",
    "data=null": "'data' is null and no train_loader was given",
    "model=null": "'model' is null and no model was set",
    "data=[]": "'data' must be a section with a 'kind', one of: ",
    "batch_size=0": "'batch_size' must be greater than or equal to 1 (found 0)",
    "batch_size=010": "010 could mean two numbers; write 10",
    "batch_size=1.5e0": "'batch_size' must be a whole number (found 1.5)",
    "batch_size=": "'batch_size' must be a whole number (found null)",
    "batch_size=" + "9" * 5000: "a number of 5000 digits",
    f"batch_size={2**63}": "'batch_size' must be less than 9223372036854775808",
    "batch_sizes=3": "Did you mean 'batch_size'?",
    "optimizer={}": "'optimizer' must be a section with a 'kind', one of: adam, ",
    "optimizer={kind: nope}": "no optimizer kind is named 'nope'. Known: adam, ",
    "optimizer={": "override optimizer: line 1, column 2: not readable as YAML",
    "learning_rate=.nan": "'optimizer.learning_rate' must be a finite number (found NaN)",
    "learning_rate=1e400": "'optimizer.learning_rate' must be a finite number",
    "settings.loggers=[{kind: nope}]": "'settings.loggers.0.kind' is wrong: no logger kind is named",
    "settings.loggers=[{kind: csv, sep: x}]": "'settings.loggers.0.sep' is not a key here",
    "settings.loggers=null": "'settings.loggers' must be a list (found null)",
    "settings.device=bogus": "settings.device is 'bogus', which is no device; write cpu, cuda",
    "settings.device=meta": "ludus computes on cpu, cuda or mps",
    "settings.threads=0": "'settings.threads' must be greater than or equal to 1",
    "settings.threads=9999": "'settings.threads' must be less than or equal to 1024",
    "model.inputs=10": "make model.inputs and model.outputs fit the data",
    "model.outputs=2": "make model.inputs and model.outputs fit the data",
    "model.widths=[1000000000000]": "out of memory; make the model or the batch smaller",
    f"model.inputs={2**60}": "out of memory; make the model or the batch smaller",
    "model.kind=os.system": "no model kind is named 'os.system'",
    "kind=os.system": "no trainer kind is named 'os.system'",
    "kind=supervise": "no trainer kind is named 'supervise'. Did you mean 'supervised'?",
    "kind=null": "'kind' is null; it names the trainer",
    "version=7": f"'version' must be {VERSION}",
    "data.validation_fraction=0.9": "leave nothing of 178 examples to train on",
    "evaluation.stopping_metric=loss": "'evaluation.stopping_metric' is loss, which this run never writes",
    "evaluation.patience=[": "not readable as YAML",
    "max_opt_steps.x=1": "'max_opt_steps' is null, so 'max_opt_steps.x' cannot be set",
    "name=!!python/object/apply:os.system [ls]": "is not allowed; write plain values",
    "name=&a b": "anchors and aliases (& and *) are not allowed",
    'name="\\ud800"': "half of a surrogate pair",
    "name=\udcff": "not readable as YAML",
}


@pytest.mark.parametrize(("override", "told"), MISTAKES.items(), ids=[k[:40] for k in MISTAKES])
def test_a_mistaken_override_is_one_error_before_anything_is_written(
    call: Ludus, config: str, tmp_path: Path, override: str, told: str
) -> None:
    assert told in call("plan", config, override).refusal()
    assert told in call("train", config, override).refusal()
    assert [path.name for path in tmp_path.iterdir()] == ["small.yaml"]


def test_all_mistakes_of_the_command_line_are_told_at_once_and_as_its_own(
    call: Ludus, config: str
) -> None:
    wrong = ["bach_size=32", "sed=1", "max_epochs=0", "seed=-1", "optimizer={kind: nope}"]
    told = call("train", config, *wrong).refusal().splitlines()
    assert told[:3] == [
        "the command line: 2 problems:",
        "  - 'bach_size' is not a key of this config. Did you mean 'batch_size'?",
        "  - 'sed' is not a key of this config. Did you mean 'seed'?",
    ]
    assert told[3:5] == [
        "the command line: 3 problems:",
        "  - 'seed' must be greater than or equal to 0 (found -1)",
    ]
    assert "optimizer.kind" in told[6] or "optimizer.kind" in told[5]
    assert len(told) == 7


def test_a_mistake_is_told_as_the_file_s_or_the_command_line_s_or_of_both(
    call: Ludus, config: str
) -> None:
    text = Path(config).read_text()
    Path(config).write_text(text.replace("drop_last: false", "drop_last: 7"))
    assert call("train", config, "seed=-1").refusal().splitlines() == [
        "the command line: 'seed' must be greater than or equal to 0 (found -1)",
        f"{config}: 'drop_last' must be true or false (found 7)",
    ]
    Path(config).write_text(text)
    told = call("train", config, "evaluate_every_epochs=0").refusal()
    assert "'evaluation.metric' is validation/epoch_accuracy, which this run never writes" in told
    told = call("train", config, "loss=mse", "model.outputs=1").refusal()
    assert "'evaluation.metric'" in told
    told = call("train", config, "data.validation_fraction=0.0").refusal()
    assert told.startswith(f"{config} with data.validation_fraction from the command line: ")
    told = call("train", config, "kind=supervise").refusal()
    assert told.startswith("the command line: no trainer kind is named 'supervise'")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_a_device_this_machine_lacks_is_told(call: Ludus, config: str, device: str) -> None:
    told = call("train", config, f"settings.device={device}").refusal()
    assert f"settings.device is '{device}', but torch sees no CUDA device here" in told


FILES = {
    "": "expected keys and values, found nothing; `ludus new KIND` prints a whole file",
    "[1, 2]": "expected keys and values, found a list",
    "just words": "expected keys and values, found a str",
    "version: 1": "'kind' is missing; it names the trainer",
    "kind: supervised": f"'version' is missing; the current one is {VERSION}",
    f"version: {VERSION}\nkind: supervised": "problems:\n  - 'name' is missing",
    f"version: {VERSION + 1}\nkind: supervised": f"version {VERSION + 1} is newer than this ludus reads",
    "version: 1\nversion: 1": "line 2: the key 'version' appears twice (first on line 1)",
    "a:\n\tb: 1": "indent with spaces, not tabs",
    "[" * 20_000: "nested more than 40 deep",
    "x" * 70_000: "a config is a page, not a data file",
}


@pytest.mark.parametrize(("text", "told"), FILES.items(), ids=[k[:20] or "empty" for k in FILES])
def test_a_file_that_is_no_config_is_told(call: Ludus, text: str, told: str) -> None:
    Path("bad.yaml").write_text(text)
    for words in (["train"], ["plan"], ["explain"], ["migrate"], ["train", "seed=1"]):
        message = call(words[0], "bad.yaml", *words[1:]).refusal()
        assert "bad.yaml: " in message
        assert told in message


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("nope.yaml", "nope.yaml: no such file; `ludus new KIND > nope.yaml` writes one"),
        (
            "dqm",
            "dqm: no such file or preset; `ludus new KIND > dqm.yaml` writes one. Did you mean 'dqn'?",
        ),
        (".", ". is a directory; give the config file"),
        ("small.yaml/x", "small.yaml/x: cannot be read: Not a directory"),
        ("x" * 5000, "cannot be read: File name too long"),
    ],
)
@pytest.mark.usefixtures("config")
def test_a_path_that_is_no_file_is_told(call: Ludus, path: str, told: str) -> None:
    for command in ("train", "plan", "explain", "migrate"):
        assert told in call(command, path).refusal()


def test_new_of_an_unknown_kind_suggests_the_nearest(call: Ludus) -> None:
    assert "Did you mean 'supervised'?" in call("new", "supervized").refusal()
    assert "no trainer kind or file is named '../x'. Known: " in call("new", "../x").refusal()


@pytest.mark.parametrize("path", [".", "small.yaml", "nowhere", "x" * 5000, "small.yaml/x", ""])
@pytest.mark.usefixtures("config")
def test_what_is_no_run_is_told(call: Ludus, path: str) -> None:
    for command in ("resume", "eval", "report"):
        told = call(command, path).refusal()
        assert "is not a run directory; `ludus runs` lists" in told or "too long" in told


def test_a_run_that_never_saved_cannot_be_evaluated(call: Ludus, run: Path) -> None:
    shutil.rmtree(run / "checkpoints")
    assert "has no checkpoint yet" in call("eval", str(run)).refusal()


DAMAGE = {
    "run.json": [b"", b"{", b"[]", b'{"format": 1}', b'{"format": 9}', b"\xff", b"[" * 9000],
    "config.yaml": [b"", b"{", b"[]", b"\xff", b"version: 1\nkind: supervised", b"kind: [x]"],
}


@pytest.mark.parametrize(
    ("name", "content"), [(name, content) for name in DAMAGE for content in DAMAGE[name]]
)
def test_a_damaged_run_is_told_in_a_sentence(
    call: Ludus, run: Path, name: str, content: bytes
) -> None:
    (run / name).write_bytes(content)
    for words in (["resume"], ["resume", "max_epochs=3"], ["eval"]):
        message = call(words[0], str(run), *words[1:]).refusal()
        assert f"{run}/{name}" in message
        assert "restore it from a backup" in message or name != "run.json"
    (row,) = call("runs", "--json").json["runs"]
    assert (row["status"] == "damaged") == (name == "run.json")
    assert call("runs").code == 0
    report = call("report", str(run))
    assert report.code == 0 or "run.json" in report.refusal()


def test_a_best_model_that_was_lost_is_read_from_its_copy(call: Ludus, run: Path) -> None:
    for path in run.glob("models/best-*"):
        shutil.rmtree(path)
    told = call("eval", str(run))
    assert f"{run}: models/best\n" in told.out
    assert "its copy in models/best is read instead" in told.err


@pytest.mark.parametrize("missing", ["config.yaml", "checkpoints/*/manifest.json"])
def test_a_run_that_lost_files_is_told_in_a_sentence(call: Ludus, run: Path, missing: str) -> None:
    for path in run.glob(missing):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert call("eval", str(run)).refusal()
    assert call("runs", "--json").json["runs"][0]["status"] == "finished"


@pytest.mark.parametrize(
    "line",
    [
        "{",
        "[]",
        "null",
        '{"time": 1}',
        '{"event": "finished", "best": 3}',
        '{"event": "finished", "best": {"score": "high", "metric": "x"}}',
        '{"event": "finished", "counters": {"epoch": "two"}}',
    ],
)
def test_a_damaged_journal_does_not_break_the_list_of_runs(
    call: Ludus, run: Path, line: str
) -> None:
    with (run / "events.jsonl").open("a") as file:
        file.write(line + "\n")
    (row,) = call("runs", "--json").json["runs"]
    assert row["status"] == "finished" or "events.jsonl" in row["reason"]
    table = call("runs")
    assert table.code == 0
    assert "small" in table.out
    assert call("report", str(run)).code == 0


@pytest.mark.parametrize("created", [3, "soon", None])
def test_a_damaged_date_does_not_break_the_list_of_runs(
    call: Ludus, run: Path, created: Any
) -> None:
    note = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(note | {"created": created}))
    told = call("runs").out
    assert "damaged" in told
    assert "run.json" in told


@pytest.mark.parametrize(
    "words", [["bogus"], ["train"], ["runs", "--nope"], ["verify", "x", "--kills", "0"]]
)
def test_a_command_used_wrongly_shows_how_to_use_it(call: Ludus, words: list[str]) -> None:
    told = call(*words)
    assert told.code == 2
    assert "Usage: ludus" in told.err
    assert "Traceback" not in told.err


@pytest.mark.filterwarnings("default")
def test_a_warning_is_a_sentence_without_the_line_of_code_it_came_from(
    call: Ludus, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = small_config().model_dump()

    def warns(path: str) -> Any:
        warnings.warn("the cache is damaged", stacklevel=1)
        return data

    monkeypatch.setattr("ludus.cli.tasks.read_data", warns)
    assert call("plan", config).err == "ludus: the cache is damaged\n"


def test_a_bug_is_not_hidden(call: Ludus, config: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(path: str) -> None:
        raise RuntimeError("ours")

    monkeypatch.setattr("ludus.cli.tasks.read_data", broken)
    with pytest.raises(RuntimeError, match="ours"):
        call("plan", config)


def test_ctrl_c_is_told_in_a_sentence(
    call: Ludus, config: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(path: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ludus.cli.tasks.read_data", interrupted)
    told = call("plan", config)
    assert told.code == 130
    assert told.err == "ludus: stopped at once; a run can be resumed from its last checkpoint\n"


@pytest.mark.parametrize("name", ["pipe.yaml", "/dev/zero"])
def test_a_config_that_is_no_regular_file_is_refused_at_once(
    call: Ludus, tmp_path: Path, name: str
) -> None:
    os.mkfifo(tmp_path / "pipe.yaml")
    for command in ("train", "plan", "explain", "migrate", "verify"):
        told = call(command, name).refusal()
        assert told == f"{name} is not a regular file; pipe the config in, and give -"


# In a process of its own


def test_the_real_command_refuses_a_mistake_with_exit_code_1(tmp_path: Path) -> None:
    assert "no such file" in in_subprocess("train", "nope.yaml", cwd=tmp_path).refusal()
    assert list(tmp_path.iterdir()) == []


def test_the_real_command_trains_resumes_and_keeps_its_output_apart(tmp_path: Path) -> None:
    text = small_config(max_epochs=1).to_yaml()
    trained = in_subprocess("train", "-", "--json", cwd=tmp_path, stdin=text).json
    assert (trained["run_dir"], trained["status"]) == ("runs/small", "finished")
    resumed = in_subprocess("resume", "runs/small", "max_epochs=2", "--json", cwd=tmp_path).json
    assert resumed["counters"]["epoch"] == 2
    # A run of two epochs from the start would have had another schedule.
    assert resumed["exact"] == "no"
    assert "max_epochs" in resumed["inexact_because"][0]


def test_dir_of_ludus_shows_what_users_call_and_nothing_else() -> None:
    shown = dir(ludus)
    assert [name for name in shown if name.startswith("_")] == ["__version__"]
    assert {"Trainer", "build_trainer", "register"} <= {*shown}
    assert not {"Any", "TYPE_CHECKING", "annotations", "importlib", "sys", "version"} & {*shown}
    assert all(hasattr(ludus, name) for name in shown)


def test_python_m_ludus_is_the_command(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "ludus", "--version"],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=tmp_path,
    )
    assert done.stdout == f"ludus {ludus.__version__}\n"


def new_into(output: int) -> subprocess.CompletedProcess[bytes]:
    """Run `ludus new` with this file as its standard output, buffered as it is for a user."""
    command = [sys.executable, "-m", "ludus.cli", "new", "supervised"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    return subprocess.run(
        command, stdout=output, stderr=subprocess.PIPE, check=False, timeout=300, env=env
    )


def test_a_reader_that_has_seen_enough_ends_the_command_quietly() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = new_into(writer)
    os.close(writer)
    assert done.returncode == 141
    assert done.stderr == b""


def test_a_full_disk_under_standard_output_is_told() -> None:
    with open("/dev/full", "wb") as full:
        done = new_into(full.fileno())
    assert done.returncode == 1
    assert done.stderr == b"ludus: the system: No space left on device\n"


@pytest.mark.parametrize(
    "code",
    [
        "import ludus; ludus.LudusError, ludus.Repeat, ludus.Stage",
        "import sys; sys.argv = ['ludus', '--help']; from ludus.cli.commands import main; main()",
        "import sys; sys.argv = ['ludus', 'train', '-h']; from ludus.cli.commands import main; main()",
    ],
    ids=["import", "help", "train help"],
)
def test_neither_import_nor_help_brings_torch_in(code: str) -> None:
    watch = "import atexit, sys; atexit.register(lambda: print('torch' in sys.modules, file=sys.stderr))"
    done = subprocess.run(
        [sys.executable, "-c", f"{watch}\n{code}"], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0
    assert done.stderr == "False\n"
