"""What `ludus verify` runs in processes of their own: a config, or a script with all it has."""

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
    """A process ended by a mistake of its own."""


class Subject(Protocol):
    """Something that trains in a process of its own and can be killed there."""

    name: str

    def run(
        self,
        root: Path,
        words: Sequence[str] = (),
        *,
        may_die: bool = False,
        seconds: float | None = None,
    ) -> bool:
        """Run or resume all below this directory; return whether it came to its end.

        Raise Failed where it ended by a mistake of its own.
        """

    def runs(self, root: Path) -> list[Path]:
        """Return the directories of its runs, in order; raise LudusError where there are none."""

    def at_boundary(self, run: int, boundary: int) -> list[str]:
        """Return the words that let it die at a boundary of one of its runs."""

    def saving(self, every_stages: int) -> list[str]:
        """Return the words that let it save so often."""


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
        """Return the words that let it die at a boundary."""
        return [f"--at-boundary={boundary}"]

    def saving(self, every_stages: int) -> list[str]:
        """Return the words that let it save so often."""
        return [f"settings.checkpoint.every_stages={every_stages}"]


class Script:
    """A script of a user's, with its networks, data and callbacks, and each run that it begins."""

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
        """Run it from its first line; the runs that it has begun go on."""
        given = [str(root), *self._plugins, *words, "--", *self._given]
        return run_child("ludus.testing.script_victim", given, may_die=may_die, seconds=seconds)

    def runs(self, root: Path) -> list[Path]:
        """Return the directories of its runs, in the order in which it begins them."""
        found = [note.parent for note in sorted(root.glob("*/*/run.json"))]
        if not found:
            raise LudusError(
                f"{self.name} came to its end without a fit that keeps a run (fit(runtime=...) keeps"
                " none), so there is nothing to kill and resume"
            )
        return found

    def at_boundary(self, run: int, boundary: int) -> list[str]:
        """Return the words that let it die at a boundary of one of its runs."""
        return [f"--at-boundary={run}:{boundary}"]

    def saving(self, every_stages: int) -> list[str]:
        """Return the words that let it save so often."""
        return [f"--every-stages={every_stages}"]


def run_child(module: str, words: Sequence[str], *, may_die: bool, seconds: float | None) -> bool:
    """Run a module in a process of its own, killed after so many seconds; return whether it ended well."""
    # A file, for a pipe would have to be read until all processes that a script has begun are gone, too.
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
            # Whatever ends the wait, a Ctrl-C too, leaves no process behind.
            child.kill()
            child.wait()
        if child.returncode != 0 and not (may_die and child.returncode == -9):
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - _MOST_WORDS))
            told = _last_words(errors.read().decode(errors="replace"))
            raise Failed(told or f"exit {child.returncode}")
        return child.returncode == 0


def _last_words(errors: str) -> str:
    """Return the sentence that says why a process failed, or the last line it wrote."""
    lines = [line.strip() for line in errors.splitlines() if line.strip()]
    told = [line.removeprefix(FAILED) for line in lines if line.startswith(FAILED)]
    return (told or lines or [""])[-1]
