"""Fault 8: a run goes on only as what it was: its config, its checkpoints and its code are its own."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.config import registry
from ludus.core.errors import CheckpointError, ConfigError, LudusError, RunError
from ludus.session import fingerprint
from ludus.session.build import rebuild_trainer
from ludus.store import checkpoint
from ludus.store.local import LocalStorage
from ludus.store.manifest import check_manifest
from tests.faults.small_run import contents, ending, events, interrupt_after, small_config, train
from tests.faults.warm import WarmProcess

EDITS = {
    "seed: 0": "seed: 7",
    "learning_rate: 0.002": "learning_rate: 0.1",
    "dropout: 0.2": "dropout: 0.0",
    "batch_size: 512": "batch_size: 256",
}


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("edited")
    assert train(root, "run", each_epoch=interrupt_after(1)).status == "interrupted"
    return root / "run"


@pytest.fixture
def run(interrupted: Path, tmp_path: Path) -> Path:
    """A copy of a run that can be gone on with, as `ludus resume` would."""
    run = Path(shutil.copytree(interrupted, tmp_path / "run"))
    note = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(note | {"origin": "config"}))
    return run


def resume(run: Path, *overrides: str) -> ludus.Result:
    trainer, storage = rebuild_trainer(run, list(overrides))
    return trainer.fit(root=str(storage.root.parent), name=storage.root.name, resume=True)


def edit(run: Path, old: str, new: str) -> None:
    text = (run / "config.yaml").read_text()
    assert old in text
    (run / "config.yaml").write_text(text.replace(old, new, 1))


def lose_checkpoints(run: Path) -> None:
    """Make it a run that was killed before its first checkpoint."""
    shutil.rmtree(run / "checkpoints")
    note = json.loads((run / "run.json").read_text())
    assert note.pop("has_checkpoint")
    (run / "run.json").write_text(json.dumps(note))
    told = [event for event in events(run) if event["event"] != "first_checkpoint"]
    (run / "events.jsonl").write_text("".join(json.dumps(event) + "\n" for event in told))


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("old", EDITS)
def test_an_edited_config_is_refused_by_name_and_nothing_changes(
    old: str, has_checkpoint: bool, run: Path
) -> None:
    if not has_checkpoint:
        lose_checkpoints(run)
    edit(run, old, EDITS[old])
    before = contents(run)
    with pytest.raises(RunError, match=rf"{old.partition(':')[0]}.*put the old values back"):
        resume(run)
    after = contents(run)
    before.pop("LOCK"), after.pop("LOCK")
    assert after == before
    edit(run, EDITS[old], old)
    assert resume(run).exact


def test_a_length_edited_in_the_file_counts_as_changed(run: Path) -> None:
    edit(run, "max_epochs: 3", "max_epochs: 4")
    result = resume(run)
    assert result.counters["epoch"] == 4
    assert "its length (max_epochs) was changed at boundary" in result.inexact_because[0]


def test_a_length_edited_before_the_first_checkpoint_is_the_length_of_the_whole_run(
    run: Path,
) -> None:
    lose_checkpoints(run)
    edit(run, "max_epochs: 3", "max_epochs: 4")
    result = resume(run)
    assert result.counters["epoch"] == 4
    assert result.exact


def test_the_checkpoints_of_another_run_are_not_taken_up(run: Path, tmp_path: Path) -> None:
    assert train(tmp_path, "other", each_epoch=interrupt_after(2)).status == "interrupted"
    shutil.rmtree(run / "checkpoints")
    shutil.copytree(tmp_path / "other" / "checkpoints", run / "checkpoints")
    shutil.copytree(tmp_path / "other" / "models", run / "models", dirs_exist_ok=True)
    with pytest.raises(CheckpointError, match="belongs to another run"):
        resume(run)


def test_one_checkpoint_of_another_run_is_skipped_aloud(
    run: Path, tmp_path: Path, right_ending: dict[str, Any]
) -> None:
    assert train(tmp_path, "other", each_epoch=interrupt_after(2)).status == "interrupted"
    number = checkpoint.numbers(LocalStorage(tmp_path / "other"))[-1]
    name = f"checkpoints/{number:010d}"
    shutil.copytree(tmp_path / "other" / name, run / name)
    assert resume(run).exact
    told = [event for event in events(run) if event["event"] == "checkpoint_damaged"]
    assert len(told) == 1
    assert "belongs to another run" in told[0]["reason"]
    assert ending(run) == right_ending


def test_the_manifest_holds_the_run_and_the_config_it_was_trained_with(run: Path) -> None:
    storage = LocalStorage(run)
    manifest = checkpoint.verify(storage, checkpoint.numbers(storage)[-1])
    note = json.loads((run / "run.json").read_text())
    config = small_config(engine="tape", memory_format="contiguous")
    assert re.fullmatch("[0-9a-f]{32}", note["run_id"])
    assert manifest["run_id"] == note["run_id"]
    assert manifest["config"] == config.model_dump(exclude={"name", "settings"})
    assert manifest["config_hash"] == config.digest() == note["config_hash"]


def test_two_runs_never_have_the_same_id(run: Path, unbroken: Path) -> None:
    ids = [json.loads((path / "run.json").read_text())["run_id"] for path in (run, unbroken)]
    assert len(set(ids)) == 2


def test_a_kill_between_the_new_length_and_the_next_checkpoint_keeps_the_label(
    run: Path, warm: WarmProcess
) -> None:
    never = ["settings.checkpoint.every_stages=0"]
    words = ["resume", str(run), "max_epochs=5", *never]
    pid = warm.start("command", words=words, sleep_at=8)
    warm.wait_for("asleep", pid)
    os.kill(pid, 9)
    warm.wait(pid)
    assert "max_epochs: 5" in (run / "config.yaml").read_text()
    storage = LocalStorage(run)
    assert checkpoint.verify(storage, checkpoint.numbers(storage)[-1])["exact"]
    result = resume(run)
    assert result.counters["epoch"] == 5
    assert not result.exact
    assert len(result.inexact_because) == 1
    assert "its length (max_epochs) was changed" in result.inexact_because[0]
    newest = checkpoint.verify(storage, checkpoint.numbers(storage)[-1])
    assert newest["inexact_because"] == list(result.inexact_because)


def test_a_manifest_of_the_first_format_is_still_read() -> None:
    path = next(Path("tests/resume/old_run/checkpoints").iterdir()) / "manifest.json"
    data = json.loads(path.read_text())
    found = check_manifest(data, source="old")
    assert data["format"] == 1
    assert found["config"] is None
    assert found["run_id"] is None


PLUGIN = """
from ludus.config.registry import register
from ludus.nn.models.mlp import MultiLayerPerceptron as Base

@register("model", "my_net")
class MyNet(Base):
    class Config(Base.Config):
        kind: str
        \"\"\"Mine.\"\"\"
"""


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that loads the plugin `my_plugin` anew, with this text added."""
    monkeypatch.syspath_prepend(str(tmp_path / "plugins"))
    monkeypatch.setattr(registry, "loaded_plugins", [])
    (tmp_path / "plugins").mkdir()

    def load(more: str = "") -> None:
        forget()
        (tmp_path / "plugins" / "my_plugin.py").write_text(PLUGIN + more)
        registry.load_plugin("my_plugin")

    def forget() -> None:
        registry.loaded_plugins.clear()
        registry._REGISTERED["model"].pop("my_net", None)
        sys.modules.pop("my_plugin", None)

    load.forget = forget  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    yield load
    forget()


def test_a_changed_plugin_is_a_difference_and_a_missing_one_is_named(
    plugin: Any, tmp_path: Path
) -> None:
    plugin()
    config = small_config()
    config = config.replace(model={**config.model.model_dump(), "kind": "my_net"})
    trainer = ludus.Trainer(config)
    trainer.fit(root=str(tmp_path), name="run")
    run = tmp_path / "run"
    note = json.loads((run / "run.json").read_text())
    assert note["plugins"] == ["my_plugin"]
    plugin.forget()
    # As in a run of a version that did not note the files.
    (run / "run.json").write_text(json.dumps({**note, "plugin_files": {}}))
    with pytest.raises(ConfigError, match=r"my_net.*begun with --plugin my_plugin"):
        rebuild_trainer(run, [])
    plugin("\nnew = 1\n")
    with pytest.raises(CheckpointError, match=r"code of my_plugin: \w+ -> \w+.*--approximate"):
        rebuild_trainer(run, [])[0].fit(root=str(tmp_path), name="run", resume=True)
    plugin()
    assert rebuild_trainer(run, [])[0].fit(root=str(tmp_path), name="run", resume=True).exact


def test_a_plugin_that_is_not_given_again_is_told_where_the_code_differs(
    plugin: Any, tmp_path: Path
) -> None:
    plugin()
    assert train(tmp_path, "run", each_epoch=interrupt_after(1)).status == "interrupted"
    plugin.forget()
    with pytest.raises(LudusError, match=r"this run had --plugin my_plugin"):
        train(tmp_path, "run")


def test_gymnasium_and_the_package_of_an_env_are_in_the_fingerprint() -> None:
    import gymnasium

    facts = fingerprint.code_of(ludus.example("dqn"), [])
    assert facts == {"gymnasium": gymnasium.__version__}


def test_an_env_of_ones_own_module_is_in_the_fingerprint_with_its_source() -> None:
    import gymnasium

    import tests.envs.odd_envs  # noqa: F401 - as it is once the env was made

    gymnasium.register("Mine-v0", entry_point="tests.envs.odd_envs:Anything")
    try:
        facts = fingerprint.code_of(ludus.example("dqn").replace(**{"env.id": "Mine-v0"}), [])
    finally:
        del gymnasium.registry["Mine-v0"]
    assert set(facts) == {"gymnasium", "code of tests.envs.odd_envs"}
