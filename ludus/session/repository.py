"""Read the git commit of the working directory without running anything its repository names.

A `.git` may come from anywhere, and its config may name programs: core.fsmonitor, filters, hooks, the
configs of submodules. So the commit is read from the files themselves. Whether the tree is dirty is
checked by a git that sees the objects and the index of the repository, but not its config.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus.core.errors import StorageError
from ludus.store.files import open_plain

_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_MOST_BYTES = 4096
_MOST_REFS = 1_000_000
_MOST_STEPS = 5
_STATUS = ("--no-optional-locks", "status", "--porcelain", "--ignore-submodules=all")


def git_state() -> dict[str, Any] | None:
    """Return the commit of the working directory, or None outside a repository.

    `dirty` says whether anything but submodules differs from the commit; it is None if git is not
    installed, if there is no working tree, or if git does not answer in time.
    """
    try:
        return next((state for above in _places() if (state := _state_of(above))), None)
    except (OSError, ValueError, StorageError):
        return None


def _places() -> Iterator[Path]:
    here = Path.cwd()
    yield from (here, *here.parents)


def _state_of(place: Path) -> dict[str, Any] | None:
    """Return the state of the repository rooted in this directory, or None."""
    for git, tree in ((place / ".git", place), (place, None)):
        folder = _pointed_to(git)
        if not ((folder / "HEAD").is_file() and (_common(folder) / "objects").is_dir()):
            continue
        commit = _commit(folder, _common(folder))
        if commit is None:
            raise ValueError("nothing is committed yet")
        return {"commit": commit, "dirty": None if tree is None else _dirty(folder, tree, commit)}
    return None


def _pointed_to(git: Path) -> Path:
    """Return the git directory: `.git` itself, or the one its line `gitdir: ...` names."""
    if not git.is_file():
        return git
    word, _, path = _text(git).partition(": ")
    return git.parent / path if word == "gitdir" else git


def _common(folder: Path) -> Path:
    """Return the directory that all working trees of a repository share."""
    file = folder / "commondir"
    return folder / _text(file) if file.is_file() else folder


def _commit(folder: Path, common: Path) -> str | None:
    """Return the commit that HEAD refers to; None if its branch has none yet."""
    found: str | None = _text(folder / "HEAD")
    for _ in range(_MOST_STEPS):
        if found is None or _COMMIT.fullmatch(found):
            return found
        ref = found.removeprefix("ref:").strip()
        if not ref.startswith("refs/") or ".." in ref.split("/"):
            return None
        files = [place / ref for place in (folder, common) if (place / ref).is_file()]
        found = _text(files[0]) if files else _packed(common, ref)
    return None


def _packed(common: Path, ref: str) -> str | None:
    file = common / "packed-refs"
    if not file.is_file():
        return None
    wanted = os.fsencode(ref)
    with open_plain(file.resolve()) as lines:
        for _ in range(_MOST_REFS):
            commit, _, name = lines.readline(_MOST_BYTES).rstrip(b"\n").partition(b" ")
            if name == wanted:
                return commit.decode("ascii", "replace")
            if not commit:
                break
    return None


def _text(file: Path) -> str:
    """Return the one line of a small file; a branch may have any name."""
    with open_plain(file.resolve()) as opened:
        return os.fsdecode(opened.read(_MOST_BYTES)).rstrip("\r\n")


def _dirty(folder: Path, tree: Path, commit: str) -> bool | None:
    """Return whether the working tree or the index differs from the commit."""
    common = _common(folder).resolve()
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    with tempfile.TemporaryDirectory(prefix="ludus-git-") as own:
        _make_own(Path(own), common, commit)
        facts = {
            "GIT_DIR": own,
            "GIT_WORK_TREE": str(tree),
            "GIT_INDEX_FILE": str(folder.resolve() / "index"),
            "GIT_OBJECT_DIRECTORY": str(common / "objects"),
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_TERMINAL_PROMPT": "0",
        }
        try:
            done = subprocess.run(
                ["git", *_STATUS],
                env={**kept, **facts},
                cwd=tree,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=5,
                check=False,
            )
        except (OSError, subprocess.SubprocessError):
            return None
    return bool(done.stdout.strip()) if done.returncode == 0 else None


def _make_own(own: Path, common: Path, commit: str) -> None:
    """Fill a git directory with the commit, the ignore rules and a two-line config."""
    (own / "refs").mkdir()
    (own / "HEAD").write_text(f"{commit}\n")
    if (common / "info").is_dir():
        (own / "info").symlink_to(common / "info")
    is_long = len(commit) == 64
    config = f"[core]\n\trepositoryformatversion = {int(is_long)}\n\tbare = false\n"
    (own / "config").write_text(config + ("[extensions]\n\tobjectFormat = sha256\n" * is_long))
