"""Nothing that ludus writes replaces what ludus did not write."""

from __future__ import annotations

import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ludus
from ludus.cli.film import write_gif
from ludus.config.migrations import VERSION
from ludus.core.errors import StorageError
from ludus.nn.export.numpy_policy import NumpyPolicy
from ludus.show.report.page import write_report
from ludus.store import outputs
from tests.command_line import Ludus, in_process, small_file
from tests.rl.small import small


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of an agent, which nobody may change."""
    root = tmp_path_factory.mktemp("trained")
    return Path(str(ludus.build_trainer(small("dqn")).fit(root=str(root), name="agent").run_dir))


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A finished run of an agent, in runs/ of the directory one stands in."""
    shutil.copytree(trained, tmp_path / "runs" / "agent")
    return Path("runs/agent")


@pytest.fixture
def call(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Ludus:
    monkeypatch.chdir(tmp_path)
    return in_process(monkeypatch, capsys)


def everything(root: Path) -> dict[str, bytes | str]:
    """Return every file below a directory with its content, and every link with where it leads."""
    found: dict[str, bytes | str] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = os.readlink(path)
        else:
            found[name] = "directory" if path.is_dir() else path.read_bytes()
    return found


PLACES = [
    ".", "thesis", "runs", "runs/agent", "runs/agent/checkpoints", "runs/agent/checkpoints/new",
    "runs/agent/models/best", "runs/agent/LOCK", "link-to-thesis", "link-to-nothing", "notes.txt",
    "notes.txt/policy", "/proc/policy", "half-a-policy", "policy-and-notes", "changed-policy",
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_an_export_refuses_every_place_that_is_not_its_own_and_changes_nothing(
    call: Ludus, run: Path, tmp_path: Path, place: str
) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter-1.tex").write_text("years of work")
    (tmp_path / "notes.txt").write_text("notes")
    (tmp_path / "link-to-thesis").symlink_to("thesis")
    (tmp_path / "link-to-nothing").symlink_to("nothing")
    for name in ("half-a-policy", "policy-and-notes", "changed-policy"):
        assert call("export", str(run), "--out", name).code == 0
    (tmp_path / "half-a-policy" / "weights.safetensors").unlink()
    (tmp_path / "policy-and-notes" / "notes.txt").write_text("notes")
    with (tmp_path / "changed-policy" / "weights.safetensors").open("ab") as file:
        file.write(b"mine")
    before = everything(tmp_path)
    told = call("export", str(run), "--out", place).refusal()
    assert told.startswith(place)
    assert "\n" not in told
    assert everything(tmp_path) == before


def test_an_export_takes_a_free_place_an_empty_one_and_its_own(
    call: Ludus, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "empty").mkdir()
    inode = (tmp_path / "empty").stat().st_ino
    for place in ("fresh", "deep/down/with a space", "empty", "empty", "fresh"):
        assert call("export", str(run), "--out", place).out == f"{place}\n"
        assert sorted(os.listdir(place)) == ["policy.json", "weights.safetensors"]
        NumpyPolicy.load(place)
    # A directory that was there stays the same one: somebody may stand in it.
    assert (tmp_path / "empty").stat().st_ino == inode
    monkeypatch.chdir(tmp_path / "empty")
    assert call("export", "../runs/agent", "--out", ".").code == 0
    assert call("export", "../runs/agent").out == "../runs/agent/policy\n"
    assert call("export", "../runs/agent").code == 0


def test_what_a_killed_export_left_behind_does_not_stop_the_next(
    call: Ludus, run: Path, tmp_path: Path
) -> None:
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "weights.safetensors.tmp-k3j4").write_bytes(b"half")
    assert call("export", str(run), "--out", "policy").code == 0
    assert sorted(os.listdir("policy")) == ["policy.json", "weights.safetensors"]


def test_an_export_that_fails_leaves_no_part_of_itself(tmp_path: Path) -> None:
    files: dict[str, Any] = {"a": b"whole", "b": None}
    for place in (tmp_path / "fresh", tmp_path):
        with pytest.raises(TypeError):
            outputs.write_directory(place, files, lambda path: False, what="a policy")
        assert everything(tmp_path) == {}


def film(path: Path, shade: int = 0) -> None:
    write_gif(path, [np.full((8, 8, 3), shade, np.uint8)] * 2, fps=25.0)


def report(path: Path, run: Path) -> None:
    write_report([run], path)


@pytest.mark.parametrize("command", ["play", "report"])
def test_a_film_and_a_report_refuse_what_ludus_did_not_write(
    call: Ludus, run: Path, tmp_path: Path, command: str
) -> None:
    end = {"play": "gif", "report": "html"}[command]
    (tmp_path / f"mine.{end}").write_bytes({"gif": b"GIF89a holiday", "html": b"<p>mine"}[end])
    (tmp_path / f"directory.{end}").mkdir()
    (tmp_path / f"link.{end}").symlink_to(f"mine.{end}")
    (tmp_path / f"dangling.{end}").symlink_to("nowhere")
    shutil.copy(tmp_path / f"mine.{end}", run / {"gif": "play.gif", "html": "report.html"}[end])
    places = [f"{name}.{end}" for name in ("mine", "directory", "link", "dangling")]
    places += [f"{run}/checkpoints/new.{end}", f"/proc/new.{end}", f"mine.{end}/new.{end}"]
    before = everything(tmp_path)
    for place in places:
        assert call(command, str(run), "--out", place).refusal().startswith(place)
    assert "was not written by ludus" in call(command, str(run)).refusal()
    assert everything(tmp_path) == before


def test_a_report_never_replaces_a_file_of_the_run(call: Ludus, run: Path) -> None:
    for name in ("config.yaml", "run.json", "metrics.jsonl", "LOCK", "extra.jsonl"):
        assert "itself keeps" in call("report", str(run), "--out", f"{run}/{name}").refusal()


def test_a_film_and_a_report_replace_their_own(run: Path, tmp_path: Path) -> None:
    run = tmp_path / run
    film(tmp_path / "new directory" / "a film.gif")
    film(tmp_path / "new directory" / "a film.gif", shade=200)
    report(tmp_path / "a report.html", run)
    before = (tmp_path / "a report.html").read_bytes()
    events = (run / "events.jsonl").read_text()
    (run / "events.jsonl").write_text(events + json.dumps({"event": "seen"}) + "\n")
    report(tmp_path / "a report.html", run)
    assert (tmp_path / "a report.html").read_bytes() != before


def test_a_film_does_not_replace_what_came_while_it_was_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = outputs._write_beside

    def while_another_writes(path: Path, data: bytes) -> Path:
        path.write_text("someone else's")
        return written(path, data)

    monkeypatch.setattr(outputs, "_write_beside", while_another_writes)
    with pytest.raises(StorageError, match="was not written by ludus"):
        film(tmp_path / "film.gif")
    assert everything(tmp_path) == {"film.gif": b"someone else's"}


def test_a_new_output_can_be_read_by_others_and_a_replaced_one_by_whom_it_could(
    tmp_path: Path,
) -> None:
    path, mask = tmp_path / "film.gif", os.umask(0o022)
    try:
        film(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o644
        path.chmod(0o600)
        film(path)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    finally:
        os.umask(mask)


def test_migrate_keeps_the_file_that_it_replaces(call: Ludus, tmp_path: Path) -> None:
    path = tmp_path / "my config.yaml"
    small_file(path)
    old = "# why I chose these values\n" + path.read_text().replace(
        f"version: {VERSION}", "version: 1"
    )
    path.write_text(old)
    told = call("migrate", str(path), "--write")
    assert told.code == 0
    assert f"version: {VERSION}\n" in path.read_text()
    assert (tmp_path / "my config.yaml.v1").read_text() == old
    assert "the old file, with its comments, is" in told.err
    # Another old file under that name is not given up for this one.
    path.write_text(old + "# changed since\n")
    before = everything(tmp_path)
    assert "my config.yaml.v1 exists" in call("migrate", str(path), "--write").refusal()
    assert everything(tmp_path) == before


def test_a_place_below_a_file_is_refused_before_any_work_is_done(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    for check in (outputs.check_directory, outputs.check_file):
        with pytest.raises(StorageError, match=r"notes\.txt is not a directory"):
            check(tmp_path / "notes.txt" / "deep" / "down", lambda path: False, what="a policy")
