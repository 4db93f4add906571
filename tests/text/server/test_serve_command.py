"""The command `ludus serve`: what it says, what it refuses, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
from pathlib import Path

import openai
import pytest

from ludus.core.errors import ConfigError
from ludus.text.server.new_models import PRESETS, given_model, new_model, preset
from tests.command_line import in_process
from tests.faults.warm import WarmProcess


def served(warm: WarmProcess, folder: Path, *words: str) -> int:
    """Start `ludus serve` and return its process id."""
    return warm.start(
        "plain_command",
        is_apart=True,
        words=["serve", "--port", "0", *words],
        cwd=str(folder),
        stdin="",
        variables={**os.environ, "TMPDIR": str(folder)},
    )


def test_it_serves_a_new_model_says_how_to_use_it_and_ends_with_ctrl_c(
    warm: WarmProcess, tmp_path: Path
) -> None:
    pid = served(warm, tmp_path, "--root", "here", "--new-model", "tiny", "--new-model", "b=tiny")
    said = warm.wait_for("Ctrl-C", pid)
    assert "ludus serves b, tiny" in said
    found = re.search(r"OPENAI_BASE_URL=(\S+)", said)
    assert found is not None
    assert 'OPENAI_API_KEY="$(cat here/token)"' in said
    path = tmp_path / "here/token"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() not in said
    with openai.OpenAI(base_url=found[1], api_key=path.read_text()) as client:
        assert sorted(model.id for model in client.models.list()) == ["b", "tiny"]
    os.kill(pid, signal.SIGINT)
    assert warm.wait(pid) == 0
    assert path.read_text() not in warm.output(pid)
    # It is made once: the same command finds it again.
    pid = served(warm, tmp_path, "--root", "here", "--new-model", "tiny")
    warm.wait_for("Ctrl-C", pid)
    os.kill(pid, signal.SIGTERM)
    assert warm.wait(pid) == 0


def test_a_mistake_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    ludus = in_process(monkeypatch, capsys)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        said = f"the server cannot listen on 127.0.0.1 port {port}: Address already in use"
        assert said in ludus("serve", "--port", port).refusal()
    for words, said in (
        (["--model", "a=none"], "none is not a directory here"),
        (["--new-model", "a=huge"], "there is no preset 'huge'"),
        (["--threads", "0"], "num_threads is 0; give a number above 0"),
        (["--device", "gpu"], "--device is 'gpu', which is no device"),
        (["--port", "70000"], "port is 70000; give one from 1 to 65535"),
    ):
        assert said in ludus("serve", *words).refusal()


def test_a_new_model_is_named_by_a_preset_or_a_file(tmp_path: Path) -> None:
    assert new_model("a") == ("a", preset("tiny"))
    assert new_model("b=medium") == ("b", preset("medium"))
    path = tmp_path / "own.yaml"
    path.write_text(
        "kind: byte_llama\nwidth: 32\nnum_layers: 1\nnum_heads: 2\nnum_kv_heads: 1\nmlp_width: 48\n"
        "context: 64\nseed: 3\nembedding_std: 0.02\n"
    )
    name, config = new_model(f"c={path}")
    assert (name, config.width, config.seed) == ("c", 32, 3)
    path.write_text("kind: byte_llama\nwidht: 32\n")
    with pytest.raises(ConfigError, match="widht"):
        new_model(f"c={path}")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        new_model("c=none.yaml")
    with pytest.raises(ConfigError, match="write NAME=DIRECTORY"):
        given_model("x")
    assert given_model("x=y=z") == ("x", Path("y=z"))


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_is_a_config_without_a_problem(name: str) -> None:
    assert list(preset(name).problems()) == []
