"""A run remembers its plugins: they are loaded again if they are what they were, and else told of."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ludus
from ludus.config import registry
from ludus.core.errors import ConfigError
from ludus.session.fingerprint import source_hash
from ludus.session.own_plugins import own_plugins, remember
from tests.command_line import MODEL, Ludus, in_process, small_file

PLUGIN = """
from ludus.config.registry import register
from ludus.nn.models.mlp import MultiLayerPerceptron as Base

@register("model", "kept_net")
class KeptNet(Base):
    class Config(Base.Config):
        kind: str
        \"\"\"Mine.\"\"\"
"""


def forget() -> None:
    """Let the process be as one that has loaded no plugin."""
    registry.loaded_plugins.clear()
    registry._REGISTERED["model"].pop("kept_net", None)
    sys.modules.pop("kept_plugin", None)


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Iterator[Ludus]:
    """The command, called from an empty directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(registry, "loaded_plugins", [])
    yield in_process(monkeypatch, capsys)
    forget()


@pytest.fixture
def run(call: Ludus, tmp_path: Path) -> Path:
    return trained_with_plugin(call, tmp_path)


def trained_with_plugin(call: Ludus, tmp_path: Path) -> Path:
    """Return a run that was begun with the plugin code/kept_plugin.py, given as a file."""
    (tmp_path / "code").mkdir()
    (tmp_path / "code/kept_plugin.py").write_text(PLUGIN)
    file = small_file(tmp_path / "small.yaml").replace(str(tmp_path), ".")
    model = json.dumps({**MODEL, "kind": "kept_net"})
    done = call("train", file, f"model={model}", "--plugin", "./code/kept_plugin.py")
    assert done.code == 0, done.err
    forget()
    sys.path[:] = [one for one in sys.path if not one.startswith(str(tmp_path))]
    return tmp_path / "runs/small"


def test_a_plugin_given_as_a_file_is_loaded_again_without_being_named(
    call: Ludus, run: Path
) -> None:
    told = call("eval", str(run))
    assert told.code == 0
    assert told.err == ""
    forget()
    assert type(ludus.load(run)).__name__ == "KeptNet"
    forget()
    assert call("resume", str(run), "max_epochs=3").code == 0


def test_a_plugin_that_has_changed_is_not_loaded_by_itself(
    call: Ludus, run: Path, tmp_path: Path
) -> None:
    file = tmp_path / "code/kept_plugin.py"
    file.write_text(PLUGIN + "\nnew = 1\n")
    told = call("eval", str(run)).refusal()
    assert "no model kind is named 'kept_net'" in told
    assert f"the plugin kept_plugin ({file}) has changed since" in told
    assert told.endswith(f"--plugin {file}.")
    again = call("eval", str(run), "--plugin", "code/kept_plugin.py")
    assert again.code == 0
    assert "ludus: the plugin kept_plugin" in again.err


def test_a_plugin_that_has_moved_is_found_on_the_import_path_or_told_of(
    call: Ludus, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "code").rename(tmp_path / "moved")
    told = call("eval", str(run)).refusal()
    assert f"is no longer at {tmp_path}/code/kept_plugin.py; give it where it is now" in told
    sys.path.insert(0, str(tmp_path / "moved"))
    assert call("eval", str(run)).code == 0


def test_code_that_lies_in_a_run_is_never_loaded(call: Ludus, run: Path, tmp_path: Path) -> None:
    note = json.loads((run / "run.json").read_text())
    (tmp_path / "code/kept_plugin.py").rename(run / "kept_plugin.py")
    note["plugin_files"]["kept_plugin"]["path"] = str(run / "kept_plugin.py")
    (run / "run.json").write_text(json.dumps(note))
    told = call("eval", str(run)).refusal()
    assert "lies inside" in told
    assert "code is never loaded from there" in told
    assert "kept_plugin" not in sys.modules


EXECUTED = "\nfrom pathlib import Path\nPath('executed').touch()\n"


def of_another(run: Path, plugin: str, text: str) -> Path:
    """Make this run one that came from elsewhere, as gift/run, and names a plugin file of this text."""
    folder = run.parents[1]
    (folder / "gift").mkdir()
    gift = run.rename(folder / "gift/run")
    (folder / plugin).write_text(text)
    note = json.loads((gift / "run.json").read_text())
    name = Path(plugin).stem
    noted = {"path": plugin, "digest": source_hash(folder / plugin)}
    note |= {"plugins": [name], "plugin_files": {name: noted}}
    (gift / "run.json").write_text(json.dumps(note))
    return gift


FROM = "start={run: gift/run, model: last, optimizer: false, frozen: [], learning_rates: []}"


@pytest.mark.parametrize(
    "words",
    [
        ("eval", "gift/run"),
        ("export", "gift/run", "--format", "torch"),
        ("export", "gift/run"),
        ("play", "gift/run"),
        ("resume", "gift/run", "max_epochs=3"),
        ("train", "small.yaml", FROM, "name=other"),
        ("train", "small.yaml", "--from", "gift/run:last", "name=other"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
@pytest.mark.parametrize("is_relative", [True, False])
def test_code_that_a_run_names_is_not_executed(
    call: Ludus, run: Path, tmp_path: Path, words: tuple[str, ...], is_relative: bool
) -> None:
    plugin = "gift/mine.py" if is_relative else str(tmp_path / "gift/mine.py")
    of_another(run, plugin, PLUGIN + EXECUTED)
    call(*words)
    assert not Path("executed").exists()
    assert "mine" not in sys.modules
    assert str(tmp_path / "gift") not in sys.path


def test_code_that_a_run_names_is_used_once_it_is_given(
    call: Ludus, run: Path, tmp_path: Path
) -> None:
    gift = of_another(run, str(tmp_path / "gift/mine.py"), PLUGIN)
    with pytest.raises(
        ConfigError, match=r"mine \(.*gift/mine.py\) of .* is code that you have not"
    ):
        ludus.load(gift)
    told = call("eval", str(gift)).refusal()
    assert "no model kind is named 'kept_net'" in told
    assert told.endswith(f"give it if you trust it: --plugin {tmp_path}/gift/mine.py.")
    assert call("eval", str(gift), "--plugin", "gift/mine.py").code == 0
    forget()
    sys.modules.pop("mine")
    assert call("eval", str(gift)).code == 0, "it has been given once"
    sys.modules.pop("mine")


def test_a_copy_of_a_plugin_beside_code_of_another_is_not_loaded(
    call: Ludus, run: Path, tmp_path: Path
) -> None:
    text = (tmp_path / "code/kept_plugin.py").read_text()
    gift = of_another(run, str(tmp_path / "gift/kept_plugin.py"), text)
    assert "is code that you have not given before" in call("eval", str(gift)).refusal()


def test_a_version_that_was_never_given_is_not_loaded_from_the_place_of_another(
    call: Ludus, run: Path
) -> None:
    place = Path(os.environ["XDG_STATE_HOME"], "ludus/plugins.json")
    tree = json.loads(place.read_text())
    place.write_text(json.dumps({"plugins": [[*one[:2], "0" * 64] for one in tree["plugins"]]}))
    assert "is code that you have not given before" in call("eval", str(run)).refusal()


def test_a_name_that_a_run_gives_to_a_known_file_loads_no_other_module(
    call: Ludus, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "on_path").mkdir()
    (tmp_path / "on_path/other_module.py").write_text(EXECUTED)
    monkeypatch.syspath_prepend(str(tmp_path / "on_path"))
    note = json.loads((run / "run.json").read_text())
    noted = note["plugin_files"].pop("kept_plugin")
    note |= {"plugins": ["other_module"], "plugin_files": {"other_module": noted}}
    (run / "run.json").write_text(json.dumps(note))
    assert "is code that you have not given before" in call("eval", str(run)).refusal()
    assert not Path("executed").exists()


def test_a_list_that_cannot_be_written_lets_a_run_go_on(
    call: Ludus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    trained = trained_with_plugin(call, tmp_path)
    assert "is code that you have not given before" in call("eval", str(trained)).refusal()
    assert call("eval", str(trained), "--plugin", "./code/kept_plugin.py").code == 0


@pytest.mark.parametrize(
    "text", ["", "[", "[]", '{"plugins": 1}', '{"plugins": [1, ["a", "b", 2]]}']
)
def test_a_damaged_list_is_an_empty_one_and_written_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    place = list_in(tmp_path, monkeypatch)
    place.parent.mkdir(parents=True)
    place.write_text(text)
    assert own_plugins() == []
    remember(["shlex"])
    assert [one.name for one in own_plugins()] == ["shlex"]
    assert place.stat().st_mode & 0o777 == 0o600


def test_a_list_that_others_can_write_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = list_in(tmp_path, monkeypatch)
    remember(["shlex"])
    assert len(own_plugins()) == 1
    place.chmod(0o666)
    assert own_plugins() == []


def test_the_list_keeps_the_newest_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    list_in(tmp_path, monkeypatch)
    monkeypatch.setattr("ludus.session.own_plugins._MAX_FILES", 2)
    for name in ("json", "string", "shlex"):
        remember([name])
        remember([name])
    assert [one.name for one in own_plugins()] == ["string", "shlex"]


def list_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    return folder / "ludus/plugins.json"


def test_a_file_that_is_no_plugin_is_told(tmp_path: Path, call: Ludus) -> None:
    with pytest.raises(ConfigError, match=r"--plugin gone.py: no such file"):
        ludus.load_plugin("gone.py")
    (tmp_path / "json.py").write_text("")
    with pytest.raises(ConfigError, match=r"another module is named json .*rename the file"):
        ludus.load_plugin("json.py")
