"""Calls the `ludus` command as a user does, in this process or in one of its own, on a small config."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import ludus
from ludus.cli.commands import main

MODEL = {"kind": "mlp", "inputs": 13, "widths": [8], "outputs": 3, "activation": "relu"}
MODEL |= {"layer_norm": False, "dropout": 0.0}
DATA = {"kind": "wine", "validation_fraction": 0.2, "test_fraction": 0.2, "standardise": True}
BEST = {
    "evaluation.metric": "validation/epoch_accuracy", "evaluation.keep": 1, "evaluation.patience": 9
}  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """What a user sees of a command that has ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on standard output, which holds nothing else."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        return json.loads(self.out)

    def refusal(self) -> str:
        """The one sentence that refused a mistake."""
        assert self.code == 1
        assert self.out == ""
        assert self.err.startswith("ludus: ")
        assert "Traceback" not in self.err
        return self.err.removeprefix("ludus: ").strip()


Ludus = Callable[..., Outcome]


def in_process(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ludus:
    """Return a function that runs the command's `main` here; what it lets through fails the test."""

    def call(*words: str, stdin: str = "") -> Outcome:
        monkeypatch.setattr(sys, "argv", ["ludus", *words])
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        out, err = capsys.readouterr()
        return Outcome(int(caught.value.code or 0), out, err)

    return call


def in_subprocess(*words: str, cwd: Path, stdin: str = "", seconds: float = 600) -> Outcome:
    """Run the installed command in a process of its own."""
    command = Path(sys.executable).with_name("ludus")
    done = subprocess.run(
        [str(command), *words],
        cwd=cwd,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "TMPDIR": str(cwd)},
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def small_config(**changes: Any) -> Any:
    """Return a supervised config that trains in a moment and shows nothing."""
    settings = {"settings.device": "cpu", "settings.display": "none", "settings.loggers": []}
    config = ludus.example("supervised").replace(
        name="small", data=DATA, model=MODEL, loss="cross_entropy", batch_size=64, max_epochs=2,
        max_opt_steps=None, **BEST, evaluate_every_epochs=1,
        learning_rate_schedule={"kind": "constant", "warmup_steps": 0}, **settings,
    )  # fmt: skip
    return config.replace(**changes)


def small_file(path: Path, **changes: Any) -> str:
    """Write such a config to a file and return its path."""
    path.write_text(small_config(**changes).to_yaml(), encoding="utf-8")
    return str(path)
