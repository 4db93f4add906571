"""The weights a command is asked for are those it uses; whatever a script or a damaged file did to a run."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import ludus
from ludus.config import registry
from ludus.config.registry import find, register_trainer
from ludus.store.local import LocalStorage
from ludus.store.models import read_model, write_model
from tests.command_line import Ludus, in_process, small_config
from tests.rl.small import small


class Counts:
    """A callback with state."""

    def __init__(self) -> None:
        self.num_epochs = 0

    def after_epoch(self) -> None:
        self.num_epochs += 1

    def state_dict(self) -> dict[str, Any]:
        return {"num_epochs": self.num_epochs}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.num_epochs = state["num_epochs"]


class Watches:
    """A callback without state."""

    def after_train(self) -> None: ...


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    """The command, called from an empty directory."""
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The root of two finished runs, `small` and `pole`, which nobody may change.

    `small` was saved at every boundary, and its best model changed between the checkpoints it kept.
    """
    root = tmp_path_factory.mktemp("runs")
    changes = {"evaluation.metric": "validation/epoch_loss", "settings.checkpoint.keep_last": 9}
    config = small_config(**changes, **{"settings.checkpoint.every_stages": 1})
    ludus.build_trainer(config).fit(root=str(root))
    trainer = ludus.build_trainer(small("dqn"))
    trainer.add(Watches())
    trainer.fit(root=str(root), name="pole")
    return root


@pytest.fixture
def run(runs: Path, tmp_path: Path) -> Path:
    """A finished run that may be changed."""
    shutil.copytree(runs / "small", tmp_path / "runs" / "small")
    return tmp_path / "runs" / "small"


@pytest.fixture
def pole(runs: Path, tmp_path: Path) -> Path:
    """A finished run of an agent, which a script began with a callback."""
    shutil.copytree(runs / "pole", tmp_path / "runs" / "pole")
    return tmp_path / "runs" / "pole"


# What a script gave


def test_a_run_with_a_callback_is_evaluated_like_one_without(call: Ludus) -> None:
    ludus.build_trainer(small_config()).fit(name="plain")
    trainer = ludus.build_trainer(small_config())
    trainer.add(Counts())
    trainer.fit(name="counted")
    for model in ("best", "last"):
        plain, counted = (
            call("eval", f"runs/{name}", "--model", model, "--json").json
            for name in ("plain", "counted")
        )
        assert counted["metrics"] == plain["metrics"]
        assert counted["model"] == plain["model"]


def test_an_agent_with_a_callback_is_evaluated_filmed_and_exported(call: Ludus, pole: Path) -> None:
    assert call("eval", str(pole), "--json").json["metrics"]["eval/episodes"] == 2
    assert Path(call("play", str(pole)).out.strip()).is_file()
    assert Path(call("export", str(pole)).out.strip()).is_dir()


def test_a_film_of_a_run_without_a_best_model_says_whose_weights_it_shows(call: Ludus) -> None:
    config = small("ppo", evaluate_every_epochs=0, **{"evaluation.target": None})
    ludus.build_trainer(config).fit(name="unjudged")
    told = call("play", "runs/unjudged")
    assert "has no best model; these are the weights of checkpoint " in told.err
    assert Path(told.out.strip()).is_file()


def test_a_run_with_a_callback_is_resumed_by_its_script_alone(call: Ludus, pole: Path) -> None:
    told = call("resume", str(pole)).refusal()
    assert "has callbacks that a script added, so only the script can resume it" in told
    assert "again with fit(resume=True)" in told


def with_model() -> Any:
    trainer = ludus.build_trainer(small_config(model=None, max_epochs=1))
    trainer.set_model(torch.nn.Linear(13, 3))
    return trainer


def with_data() -> Any:
    rows = torch.utils.data.TensorDataset(torch.randn(64, 13), torch.randint(3, (64,)))
    changes = {
        "data": None,
        "evaluate_every_epochs": 0,
        "evaluation.patience": None,
        "evaluation.keep": 0,
    }
    return ludus.Trainer(small_config(max_epochs=1, **changes), train_loader=rows)


def of_own_class() -> Any:
    class Mine(ludus.Trainer):
        """Is not what the config's kind names."""

    return Mine(small_config(max_epochs=1))


@pytest.mark.parametrize("build", [with_model, with_data, of_own_class])
def test_what_a_script_gave_besides_callbacks_is_still_known_to_the_script_alone(
    call: Ludus, build: Callable[[], Any]
) -> None:
    trainer = build()
    trainer.add(Watches())
    trainer.fit(root="runs")
    for command in ("eval", "resume"):
        told = call(command, "runs/small").refusal()
        assert "was built by a script, which alone knows its model and data" in told


def test_a_run_whose_note_does_not_tell_callbacks_from_models_is_left_to_its_script(
    call: Ludus, pole: Path
) -> None:
    note = json.loads((pole / "run.json").read_text())
    del note["model_origin"]
    (pole / "run.json").write_text(json.dumps(note))
    assert "was built by a script" in call("eval", str(pole)).refusal()


def test_a_note_that_says_neither_config_nor_script_is_damaged(call: Ludus, pole: Path) -> None:
    note = json.loads((pole / "run.json").read_text())
    (pole / "run.json").write_text(json.dumps(note | {"model_origin": "nobody"}))
    told = call("eval", str(pole)).refusal()
    assert f"{pole}/run.json does not say how the run was built" in told
    assert "restore it from a backup" in told


# Damaged models


def add_byte(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"x")


def put_another(folder: Path) -> None:
    """Put other weights there, with a note that fits them."""
    storage = LocalStorage(folder.parent)
    weights, note = read_model(storage, folder.name)
    write_model(storage, folder.name, {name: one + 1 for name, one in weights.items()}, note)


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "weights changed": (lambda m: add_byte(m / "weights.safetensors"), "weights.safetensors has"),
    "a note changed": (lambda m: add_byte(m / "model.json"), "model.json has changed"),
    "weights gone": (lambda m: (m / "weights.safetensors").unlink(), "weights.safetensors"),
    "all gone": (shutil.rmtree, "model.json"),
    "another model in its place": (put_another, "model.json has changed"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_best_model_that_is_damaged_and_has_no_copy_is_refused_and_no_other_is_used(
    call: Ludus, run: Path, name: str
) -> None:
    damage, file = DAMAGES[name]
    newest = sorted((run / "models").glob("best-*"))[-1]
    assert len(list((run / "models").glob("best-*"))) > 1, "an older checkpoint has another best"
    damage(newest)
    damage(run / "models/best")
    told = call("eval", str(run)).refusal()
    assert f"the best model of {run} is damaged: {newest}/{file}" in told
    assert "use the newest weights: --model last" in told


@pytest.mark.parametrize("command", ["eval", "play", "export"])
def test_every_command_that_takes_the_best_model_refuses_a_damaged_one(
    call: Ludus, pole: Path, command: str
) -> None:
    for folder in (pole / "models").glob("best*"):
        add_byte(folder / "weights.safetensors")
    assert "use the newest weights: --model last" in call(command, str(pole)).refusal()
    assert call(command, str(pole), "--model", "last").code == 0


def test_the_last_weights_are_had_without_a_word_on_the_best_model(call: Ludus, run: Path) -> None:
    before = call("eval", str(run), "--model", "last", "--json").json
    for folder in (run / "models").glob("best*"):
        add_byte(folder / "weights.safetensors")
    after = call("eval", str(run), "--model", "last", "--json")
    assert after.json == before
    assert after.err == ""
    number = max(int(one.name) for one in (run / "checkpoints").iterdir())
    assert before["model"] == f"checkpoint {number}"


def test_a_copy_that_is_of_another_model_does_not_stand_in_for_the_best(
    call: Ludus, run: Path
) -> None:
    older, newest = sorted((run / "models").glob("best-*"))[-2:]
    shutil.rmtree(newest)
    shutil.rmtree(run / "models/best")
    shutil.copytree(older, run / "models/best")
    assert "is not an intact copy of it" in call("eval", str(run)).refusal()


def test_a_best_model_with_other_weights_in_its_place_is_read_from_its_copy(
    call: Ludus, run: Path
) -> None:
    before = call("eval", str(run), "--json").json["metrics"]
    put_another(sorted((run / "models").glob("best-*"))[-1])
    told = call("eval", str(run), "--json")
    assert told.json["metrics"] == before
    assert told.json["model"] == "models/best"
    assert "its copy in models/best is read instead" in told.err


def test_the_best_model_does_not_depend_on_the_state_of_a_checkpoint(
    call: Ludus, run: Path
) -> None:
    before = call("eval", str(run), "--json").json
    newest = max((run / "checkpoints").iterdir())
    add_byte(newest / "tensors.safetensors")
    told = call("eval", str(run), "--json")
    assert told.json == before
    assert told.err == ""
    last = call("eval", str(run), "--model", "last")
    assert f"checkpoint {int(newest.name)} is damaged and was skipped" in last.err
    assert f"checkpoint {int(newest.name) - 1}\n" in last.out


def test_a_damaged_note_of_a_model_is_told_with_its_path_and_a_remedy(
    call: Ludus, run: Path
) -> None:
    (run / "models/best/model.json").write_text("{")
    for given in ("models/best", f"{run}/models/best"):
        told = call("eval", str(run), "--model", given).refusal()
        assert told.startswith(f"{run}/models/best/model.json: not readable as JSON")
        assert "restore its directory from a backup, or take another model" in told


# Runs without weights, and kinds of one's own


def test_a_run_that_keeps_no_weights_names_the_run_that_does(
    call: Ludus, run: Path, tmp_path: Path
) -> None:
    config = ludus.example("rerun_tests", run=str(run))
    quiet = {"settings.display": "none", "settings.loggers": [], "settings.device": "cpu"}
    ludus.build_trainer(config.replace(**quiet)).fit(name="tests")
    for command in ("eval", "play", "export"):
        assert call(command, "runs/tests").refusal() == (
            "a run of kind 'rerun_tests' keeps no weights of its own, for it works with those of"
            f" {run}; give that run: ludus {command} {run}"
        )


def test_a_run_of_a_kind_that_is_not_known_here_hints_at_the_plugin(
    call: Ludus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry._REGISTERED, "trainer", {**registry._REGISTERED["trainer"]})

    @register_trainer("superviser")
    class Mine(find("trainer", "supervised")):  # type: ignore[misc]
        """Has a name that is near one of ludus's own."""

    data = small_config(max_epochs=1).model_dump() | {"kind": "superviser"}
    ludus.build_trainer(data).fit(name="mine")
    assert call("eval", "runs/mine").code == 0
    del registry._REGISTERED["trainer"]["superviser"]
    for command in ("eval", "resume"):
        told = call(command, "runs/mine").refusal()
        assert told.startswith("runs/mine/config.yaml: no trainer kind is named 'superviser'.")
        assert told.endswith("A kind of your own is found with --plugin its_module.")
