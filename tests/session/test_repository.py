"""The commit of the working directory is noted, and no program that its repository names is run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from ludus.session.repository import git_state

Git = Callable[..., str]


@pytest.fixture
def git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Git:
    """The git of a repository with one commit, which is the working directory."""
    for name in [name for name in os.environ if name.startswith("GIT_")]:
        monkeypatch.delenv(name)
    place = tmp_path / "repository"
    place.mkdir()
    monkeypatch.chdir(place)

    def git(*words: str) -> str:
        own = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        own += ["-c", "init.defaultBranch=main", "-c", "protocol.file.allow=always"]
        done = subprocess.run(["git", *own, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    Path("one").write_text("1")
    git("add", "one")
    git("commit", "-qm", "one")
    return git


def test_outside_a_repository_and_before_the_first_commit_none_is_noted(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert git_state() is None
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    git("init", "-q")
    assert git_state() is None


def test_the_commit_is_noted_and_whether_anything_differs_from_it(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, root = git("rev-parse", "HEAD"), Path.cwd()
    same, changed = {"commit": commit, "dirty": False}, {"commit": commit, "dirty": True}
    assert git_state() == same
    git("checkout", "-qb", "one\u2028two")
    assert git_state() == same
    Path("two").write_text("2")
    assert git_state() == changed
    Path(".gitignore").write_text("two\n.gitignore\n")
    assert git_state() == same
    Path(".gitignore").unlink()
    Path(".git/info/exclude").write_text("two\n")
    assert git_state() == same
    Path("below").mkdir()
    monkeypatch.chdir("below")
    assert git_state() == same
    monkeypatch.chdir(root / ".git")  # no working tree here
    assert git_state() == {"commit": commit, "dirty": None}
    monkeypatch.chdir(root)
    branch = b"refs/heads/f\xfcnf"
    Path(".git/HEAD").write_bytes(b"ref: " + branch + b"\n")
    (Path(".git/refs/heads") / "f\udcfcnf").write_text(commit)
    assert git_state() == same
    git("checkout", "-q", commit)
    assert git_state() == same
    Path("one").write_text("2")
    assert git_state() == changed
    git("add", "one")  # in the index alone
    assert git_state() == changed


def test_a_commit_is_found_in_packed_refs_worktrees_and_submodules(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit, root = git("rev-parse", "HEAD"), Path.cwd()
    git("branch", "other")
    git("pack-refs", "--all")
    assert not Path(".git/refs/heads/main").exists()
    assert git_state() == {"commit": commit, "dirty": False}
    git("worktree", "add", "-q", str(tmp_path / "tree"), "other")
    monkeypatch.chdir(tmp_path / "tree")
    git("commit", "-qm", "two", "--allow-empty")
    assert git_state() == {"commit": git("rev-parse", "HEAD"), "dirty": False}
    Path("one").write_text("2")
    assert git_state() == {"commit": git("rev-parse", "HEAD"), "dirty": True}
    (tmp_path / "above").mkdir()
    monkeypatch.chdir(tmp_path / "above")
    git("init", "-q")
    git("submodule", "--quiet", "add", str(root), "part")
    monkeypatch.chdir("part")
    assert git_state() == {"commit": commit, "dirty": False}


def test_a_repository_of_long_hashes_is_read(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "long").mkdir()
    monkeypatch.chdir(tmp_path / "long")
    git("init", "-q", "--object-format=sha256")
    git("commit", "-qm", "one", "--allow-empty")
    commit = git("rev-parse", "HEAD")
    assert len(commit) == 64
    assert git_state() == {"commit": commit, "dirty": False}


def test_without_git_the_commit_is_noted_all_the_same(
    git: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = git("rev-parse", "HEAD")
    monkeypatch.setenv("PATH", "/nowhere")
    assert git_state() == {"commit": commit, "dirty": None}


def test_no_program_that_a_foreign_repository_names_is_run(
    git: Git, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own config, an included one, its hooks, or the config of a submodule or a nested one."""
    trace, program = tmp_path / "trace", tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho ran >> {trace}\ncat\n")
    program.chmod(0o755)
    hostile = f"""
[core]
    fsmonitor = {program}
    hooksPath = {tmp_path / "hooks"}
    pager = {program}
    sshCommand = {program}
[filter "bad"]
    clean = {program}
    smudge = {program}
    process = {program}
    required = true
[diff "bad"]
    textconv = {program}
    command = {program}
[alias]
    status = "!{program}"
"""
    git("submodule", "--quiet", "add", str(Path.cwd()), "part")
    Path(".gitattributes").write_text("* filter=bad diff=bad\n")
    Path(".git/info/attributes").write_text("* filter=bad diff=bad\n")
    git("add", ".")
    git("commit", "-qm", "two")
    commit = git("rev-parse", "HEAD")
    (tmp_path / "hooks").mkdir()
    for hook in ("post-index-change", "fsmonitor-watchman", "reference-transaction"):
        for place in (tmp_path / "hooks", Path(".git/hooks")):
            (place / hook).write_text(program.read_text())
            (place / hook).chmod(0o755)
    (tmp_path / "included").write_text(hostile)
    config = Path(".git/config").read_text()
    for added in (hostile, f"[include]\n    path = {tmp_path / 'included'}\n"):
        Path(".git/config").write_text(config + added)
        Path(".git/modules/part/config").write_text(
            Path(".git/modules/part/config").read_text() + added
        )
        (Path("nested") / ".git").mkdir(parents=True, exist_ok=True)
        Path("nested/.git/config").write_text(added)
        Path("one").write_text("3")
        Path("part/one").write_text("3")
        assert not trace.exists()
        assert git_state() == {"commit": commit, "dirty": True}
        assert not trace.exists()
    # The same repository, asked as any git is, runs them: the test can see it.
    Path(".git/config").write_text(config + hostile)
    subprocess.run(["git", "status"], capture_output=True, check=False)
    assert trace.exists()


@pytest.mark.parametrize(
    "head",
    [b"", b"\xff\xfe", b"ref: refs/../../outside", b"ref: /outside", b"ref: refs/heads/a\0b"],
)
def test_a_head_that_leads_nowhere_is_no_commit(git: Git, tmp_path: Path, head: bytes) -> None:
    (tmp_path / "outside").write_text("a" * 40)
    Path(".git/HEAD").write_bytes(head + b"\n")
    assert git_state() is None


def test_a_pipe_in_the_place_of_a_file_holds_nobody(git: Git) -> None:
    Path(".git/HEAD").unlink()
    os.mkfifo(".git/HEAD")
    assert git_state() is None
    Path(".git/HEAD").unlink()
    Path(".git/HEAD").write_text("ref: refs/heads/main\n")
    Path(".git/refs/heads/main").unlink()
    os.mkfifo(".git/packed-refs")
    assert git_state() is None
    Path(".git/HEAD").write_text("ref: refs/heads/loop\n")
    Path(".git/refs/heads/loop").write_text("ref: refs/heads/loop\n")
    assert git_state() is None
