"""Subjects of `ludus verify`, run in child processes: a config, or a script with its objects."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ludus.core.errors import LudusError
from ludus.testing.script_victim import FAILED
from ludus.testing.victim import RUN

_MOST_WORDS = 1 << 20


class Failed(LudusError):
    """A process failed by its own error, not by a kill."""


class ContractSubject(Protocol):
    """Something that trains in its own process and can be killed there."""

    name: str

    def run(
        self,
        root: Path,
        words: Sequence[str] = (),
        *,
        may_die: bool = False,
        seconds: float | None = None,
    ) -> bool:
        """Run or resume everything below this directory; return whether it reached its end.

        Raises Failed if it ended by its own error.
        """

    def runs(self, root: Path) -> list[Path]:
        """Return the directories of its runs, in order; raise LudusError if there are none."""

    def at_boundary(self, run: int, boundary: int) -> list[str]:
        """Return the arguments that kill it at a boundary of one of its runs."""

    def saving(self, every_stages: int) -> list[str]:
        """Return the arguments that set how often it saves."""


class Config:
    """The run of a config file."""

    def __init__(self, path: str, plugins: Sequence[str]) -> None:
        self.name = "the run"
        self._path = path
        self._plugins = [f"--plugin={plugin}" for plugin in plugins]

    def run(
        self,
        root: Path,
        words: Sequence[str] = (),
        *,
        may_die: bool = False,
        seconds: float | None = None,
    ) -> bool:
        """Run or resume it."""
        given = [self._path, str(root), *self._plugins, *words]
        return run_child("ludus.testing.victim", given, may_die=may_die, seconds=seconds)

    def runs(self, root: Path) -> list[Path]:
        """Return the one directory."""
        return [root / RUN]

    def at_boundary(self, run: int, boundary: int) -> list[str]:
        """Return the arguments that kill it at a boundary."""
        return [f"--at-boundary={boundary}"]

    def saving(self, every_stages: int) -> list[str]:
        """Return the arguments that set how often it saves."""
        return [f"settings.checkpoint.every_stages={every_stages}"]


class Script:
    """A user's script, with its networks, data and callbacks, and each run that it starts."""

    def __init__(self, path: str, arguments: Sequence[str], plugins: Sequence[str]) -> None:
        self.name = path
        self._given = [path, *arguments]
        self._plugins = [f"--plugin={plugin}" for plugin in plugins]

    def run(
        self,
        root: Path,
        words: Sequence[str] = (),
        *,
        may_die: bool = False,
        seconds: float | None = None,
    ) -> bool:
        """Run it from its first line; runs that have begun are resumed."""
        given = [str(root), *self._plugins, *words, "--", *self._given]
        return run_child("ludus.testing.script_victim", given, may_die=may_die, seconds=seconds)

    def runs(self, root: Path) -> list[Path]:
        """Return the directories of its runs, in the order in which it starts them."""
        found = [note.parent for note in sorted(root.glob("*/*/run.json"))]
        if not found:
            raise LudusError(
                f"{self.name} came to its end without a fit that keeps a run (fit(runtime=...) keeps"
                " none), so there is nothing to kill and resume"
            )
        return found

    def at_boundary(self, run: int, boundary: int) -> list[str]:
        """Return the arguments that kill it at a boundary of one of its runs."""
        return [f"--at-boundary={run}:{boundary}"]

    def saving(self, every_stages: int) -> list[str]:
        """Return the arguments that set how often it saves."""
        return [f"--every-stages={every_stages}"]


def run_child(module: str, words: Sequence[str], *, may_die: bool, seconds: float | None) -> bool:
    """Run a module in a child process, killed after this many seconds; return whether it ended well."""
    # A file, because a pipe would have to be read until every descendant process is gone.
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
        )
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        finally:
            # Whatever ends the wait, a Ctrl-C included, leaves no process behind.
            child.kill()
            child.wait()
        if child.returncode != 0 and not (may_die and child.returncode == -9):
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - _MOST_WORDS))
            message = _last_words(errors.read().decode(errors="replace"))
            raise Failed(message or f"exit {child.returncode}")
        return child.returncode == 0


def _last_words(errors: str) -> str:
    """Return the message of why a process failed, or the last line it wrote."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    messages = [line.removeprefix(FAILED) for line in lines if line.startswith(FAILED)]
    return (messages or lines or [""])[-1]
