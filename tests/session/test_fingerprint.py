"""What a run's bytes depend on besides its config is noted, and what has changed is told."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

from ludus.session.fingerprint import differences, fingerprint, git_state


def test_processors_of_one_name_are_told_apart_by_their_instructions() -> None:
    now = fingerprint(torch.device("cpu"))
    assert now["instructions"] == torch.backends.cpu.get_cpu_capability()
    assert differences({**now, "instructions": "DEFAULT"}, now) == [
        f"instructions: DEFAULT -> {now['instructions']}"
    ]


def test_what_an_older_run_did_not_note_has_not_changed() -> None:
    now = fingerprint(torch.device("cpu"))
    older = {name: fact for name, fact in now.items() if name != "instructions"}
    assert differences(older, now) == []
    assert differences({**older, "threads": "9"}, now) == [f"threads: 9 -> {now['threads']}"]


def test_the_commit_is_noted_and_whether_anything_differs_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_state() is None  # no repository

    def git(*words: str) -> str:
        own = ["-c", "user.name=x", "-c", "user.email=x@example.org"]
        done = subprocess.run(["git", *own, *words], capture_output=True, text=True, check=True)
        return done.stdout.strip()

    git("init", "-q")
    assert git_state() is None  # nothing committed
    Path("one").write_text("1")
    git("add", "one")
    git("commit", "-qm", "one")
    commit = git("rev-parse", "HEAD")
    assert git_state() == {"commit": commit, "dirty": False}
    git("checkout", "-qb", "one\u2028two")
    assert git_state() == {"commit": commit, "dirty": False}
    Path("two").write_text("2")
    assert git_state() == {"commit": commit, "dirty": True}
    Path("two").unlink()
    monkeypatch.chdir(tmp_path / ".git")  # no working tree here
    assert git_state() == {"commit": commit, "dirty": False}
    monkeypatch.chdir(tmp_path)
    branch = b"refs/heads/f\xfcnf"
    Path(".git/HEAD").write_bytes(b"ref: " + branch + b"\n")
    (Path(".git/refs/heads") / "f\udcfcnf").write_text(commit)
    assert git_state() == {"commit": commit, "dirty": False}
    Path("one").write_text("2")
    assert git_state() == {"commit": commit, "dirty": True}


def test_by_a_git_without_that_status_changes_are_seen_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = {"rev-parse": ["abc"], "status": [" M one"]}

    def old_git(*words: str) -> list[str]:
        return [] if "--porcelain=v2" in words else told[words[0]]

    monkeypatch.setattr("ludus.session.fingerprint._git", old_git)
    assert git_state() == {"commit": "abc", "dirty": True}
    told["status"] = []
    assert git_state() == {"commit": "abc", "dirty": False}
