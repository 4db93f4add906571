"""A run remembers its plugins: they are loaded again if they are what they were, and else told of."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import ludus
from ludus.config import registry
from ludus.core.errors import ConfigError
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
    """A run that was begun with the plugin code/kept_plugin.py, given as a file."""
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


def test_a_file_that_is_no_plugin_is_told(tmp_path: Path, call: Ludus) -> None:
    with pytest.raises(ConfigError, match=r"--plugin gone.py: no such file"):
        ludus.load_plugin("gone.py")
    (tmp_path / "json.py").write_text("")
    with pytest.raises(ConfigError, match=r"another module is named json .*rename the file"):
        ludus.load_plugin("json.py")
