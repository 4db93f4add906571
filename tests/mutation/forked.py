"""Run tests against one changed source file, each change in a process forked from a warm one.

Importing torch takes longer than most tests here; a fork has it already. The file on disk is never
touched: the child is handed the changed text where Python would read the file.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["noticed", "survived", "timed out", "broke off"]
# Pytest's own codes: all passed; some failed; a file could not even be collected.
_OUTCOMES: dict[int, Outcome] = {0: "survived", 1: "noticed", 2: "noticed"}

_HEAVY = (
    "torch", "torch._dynamo", "numpy", "gymnasium", "gymnasium.wrappers", "gymnasium.envs.registration",
    "gymnasium.envs.classic_control", "pydantic", "pytest", "yaml", "rich.console", "typer",
    "safetensors.torch", "sklearn.datasets", "torch.utils.tensorboard",
)  # fmt: skip


def warm_up() -> None:
    """Import everything that tests import, but nothing of ludus."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in _HEAVY:
        importlib.import_module(name)
    importlib.import_module("torch").set_num_threads(1)


def outcome(path: Path, changed: str, tests: Sequence[str], *, seconds: float) -> Outcome:
    """Return whether these tests notice that the file reads otherwise."""
    pid = os.fork()
    if pid == 0:
        _be_the_child(path.resolve(), changed, tests)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return _OUTCOMES.get(os.waitstatus_to_exitcode(status), "broke off")
        time.sleep(0.05)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timed out"


def _be_the_child(path: Path, changed: str, tests: Sequence[str]) -> None:
    code = 70
    try:
        os.setpgid(0, 0)
        quiet = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(quiet, stream)
        _read_instead(path, changed)
        import pytest

        options = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", "-m", "not slow"]
        code = int(pytest.main([*options, *tests]))
    finally:
        os._exit(code)


def _read_instead(path: Path, changed: str) -> None:
    """Let imports of this one file get the changed text."""
    loader: Any = importlib.machinery.SourceFileLoader
    original = loader.get_code

    def get_code(self: Any, fullname: str) -> Any:
        if Path(self.path).resolve() == path:
            return compile(changed, str(path), "exec")
        return original(self, fullname)

    loader.get_code = get_code
