"""The files of streams: read, refused, explained, migrated, and printed by `ludus new`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.active.programs.stream import EdgeProgram
from ludus.active.stream.config import read_stream_config
from ludus.config.base import read_config
from ludus.config.migrations import VERSION
from ludus.config.registry import example_path
from ludus.core.errors import ConfigError
from tests.active.stream.streams import SECRET, standalone, whole, write
from tests.command_line import Ludus, in_process

FILES = {"stream": "standalone", "stream-edge": "edge", "stream-datacenter": "datacenter"}


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    return in_process(monkeypatch, capsys)


@pytest.mark.parametrize("name", FILES)
def test_the_shipped_files_are_complete_and_printed_by_new(name: str, call: Ludus) -> None:
    path = example_path(name)
    assert read_stream_config(path).kind == FILES[name]
    assert call("new", name).out == path.read_text()


@pytest.mark.parametrize("name", FILES)
def test_every_key_of_a_shipped_file_is_explained(name: str, call: Ludus) -> None:
    out = call("explain", str(example_path(name))).out
    assert "kind = " + FILES[name] in out
    words = {
        "stream": "edge.shift.period = 30", "stream-edge": "link.port = 9999",
        "stream-datacenter": "training.max_rounds = 3",
    }  # fmt: skip
    assert words[name] in out


def test_an_unknown_key_is_told_with_the_nearest_one(tmp_path: Path, call: Ludus) -> None:
    data = whole("edge", 9)
    data["num_step"] = data.pop("num_steps")
    data["link"]["prot"] = 1
    path = write(tmp_path / "edge.yaml", data)
    told = call("stream", str(path)).refusal()
    assert "'num_step' is not a key here. Did you mean 'num_steps'?" in told
    assert "'link.prot' is not a key here. Did you mean 'port'?" in told
    assert "'num_steps' is missing; it is: How many steps the stream has." in told


def test_a_key_is_changed_on_the_command_line(tmp_path: Path, call: Ludus) -> None:
    path = write(tmp_path / "edge.yaml", whole("edge", 9))
    found: Any = read_stream_config(path, ["num_steps=5", "link.port=10"])
    assert (found.num_steps, found.link.port) == (5, 10)
    told = call("stream", str(path), "num_stps=5").refusal()
    assert "Did you mean 'num_steps'?" in told
    assert "'send_samples' is 500" in call("stream", str(path), "send_samples=500").refusal()


def test_a_file_without_its_version_and_one_of_another_kind_are_refused(tmp_path: Path) -> None:
    data = whole("edge", 9)
    del data["version"]
    with pytest.raises(ConfigError, match=f"'version' is missing; the current one is {VERSION}"):
        read_stream_config(write(tmp_path / "old.yaml", data))
    for kind, told in (
        ("edgy", "Did you mean 'edge'"),
        (None, "'kind' is None"),
        (3, "'kind' is 3"),
    ):
        with pytest.raises(ConfigError, match=told):
            read_stream_config(write(tmp_path / "two.yaml", {"version": VERSION, "kind": kind}))
    with pytest.raises(ConfigError, match="is a trainer's; `ludus train"):
        read_stream_config(example_path("active"))


@pytest.mark.parametrize("command", ["train", "plan", "verify"])
def test_what_trainers_are_for_says_which_command_runs_a_stream(
    command: str, tmp_path: Path, call: Ludus
) -> None:
    path = write(tmp_path / "edge.yaml", whole("edge", 9))
    assert f"`ludus stream {path}` runs it" in call(command, str(path)).refusal()
    assert ludus.example("stream").kind == "standalone"


def test_a_training_of_an_older_version_is_migrated_where_it_stands(
    tmp_path: Path, call: Ludus
) -> None:
    path = write(tmp_path / "both.yaml", standalone())
    assert call("migrate", str(path)).out == path.read_text()
    data = standalone()
    training = data["datacenter"]["training"]
    training["version"] = 1
    old = write(tmp_path / "old.yaml", data)
    found: Any = read_stream_config(old)
    assert found.datacenter.training.version == VERSION
    assert "version: 1" not in call("migrate", str(old)).out
    training["version"] = 99
    with pytest.raises(ConfigError, match="version 99 is newer than this ludus reads"):
        read_stream_config(write(tmp_path / "new.yaml", data))


def test_edge_and_datacenter_in_one_process_are_two_folders_and_one_estimates(
    tmp_path: Path,
) -> None:
    data = standalone()
    data["datacenter"]["name"] = "edge"
    data["datacenter"]["state_estimation"] = data["edge"]["state_estimation"]
    with pytest.raises(ConfigError, match="are both edge") as caught:
        read_stream_config(write(tmp_path / "one.yaml", data))
    assert "given by one of 'edge' and 'datacenter'" in str(caught.value)


def test_a_secret_is_long_enough_and_in_one_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(**changes: Any) -> EdgeProgram.Config:
        data = whole("edge", 9)
        data["link"] |= changes
        found = read_stream_config(write(tmp_path / "edge.yaml", data))
        assert isinstance(found, EdgeProgram.Config)
        return found

    with pytest.raises(ConfigError, match="give one of 'secret_file' and 'secret_variable'"):
        read(secret_variable=None)
    monkeypatch.delenv("STREAM_SECRET", raising=False)
    with pytest.raises(ConfigError, match="STREAM_SECRET is not set; `export STREAM_SECRET="):
        read().link.secret()
    monkeypatch.setenv("STREAM_SECRET", "short")
    with pytest.raises(
        ConfigError, match="STREAM_SECRET holds a secret of 5 bytes; use 16 or more"
    ):
        read().link.secret()
    file = tmp_path / "secret"
    by_file = read(secret_variable=None, secret_file=str(file)).link
    with pytest.raises(ConfigError, match="No such file"):
        by_file.secret()
    file.write_text(SECRET + "\n")
    assert by_file.secret() == SECRET.encode()


def test_a_trainer_is_read_as_before() -> None:
    assert read_config(example_path("active")).kind == "active"
