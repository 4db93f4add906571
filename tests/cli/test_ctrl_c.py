"""A Ctrl-C is one line and exit code 130 from the first moment of the command on, never a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import ludus
from ludus.cli import start
from tests.command_line import small_file

INTERRUPTS = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"
TOLD = "ludus: stopped at once; a run can be resumed from its last checkpoint"


def run(place: Path, *words: str, module: str = "ludus") -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(place), str(Path(ludus.__file__).parents[1])])
    return subprocess.run(
        [sys.executable, "-m", module, *words], cwd=place, env={**os.environ, "PYTHONPATH": paths},
        capture_output=True, text=True, timeout=300, check=False,
        # A suite that a shell started in the background ignores the signal, and so would its children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip


@pytest.mark.parametrize("module", ["ludus", "ludus.cli"])
def test_while_the_command_is_still_being_imported(module: str, tmp_path: Path) -> None:
    (tmp_path / "typer").mkdir()
    (tmp_path / "typer/__init__.py").write_text(INTERRUPTS)
    done = run(tmp_path, "doctor", module=module)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", TOLD)


def test_while_a_library_is_being_imported_that_would_hide_it(tmp_path: Path) -> None:
    hides = "try:\n    import interrupts\nexcept BaseException:\n    raise RecursionError\n"
    (tmp_path / "interrupts.py").write_text(INTERRUPTS)
    (tmp_path / "hides.py").write_text(hides)
    config = small_file(tmp_path / "small.yaml")
    done = run(tmp_path, "train", config, "--plugin", "hides")
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", TOLD)
    assert not (tmp_path / "runs").exists()


def frames(*families: str) -> Any:
    """Return what stands for the frames of code in these modules, the innermost first."""
    found = None
    for room in reversed(families):
        found = SimpleNamespace(f_globals={"__name__": room}, f_back=found)
    return found


def test_once_the_command_runs_it_is_an_interrupt_that_cleans_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends: list[int] = []
    monkeypatch.setattr(os, "_exit", ends.append)
    monkeypatch.setattr(os, "write", lambda stream, data: None)
    with pytest.raises(KeyboardInterrupt):
        start._stop(signal.SIGINT, frames("torch", "ludus.cli.commands", "ludus.cli.app"))
    assert ends == []
    start._stop(signal.SIGINT, frames("numpy", "importlib._bootstrap", "ludus.cli.app"))
    start._stop(signal.SIGINT, frames("typer.core"))
    assert ends == [130, 130]
