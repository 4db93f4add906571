"""Compiled code is kept in ludus's cache folder, whoever imported torch's compiler before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from ludus.nn.engines.compiled import CACHE_VARIABLE as VARIABLE

SCRIPT = """
import sys, torch
from torch import nn
if "early" in sys.argv:
    torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)  # imports the compiler
from ludus.nn.engines.guarded import GuardedCall
GuardedCall(nn.Linear(2, 2).forward)
from torch._inductor.runtime.cache_dir_utils import cache_dir
print(cache_dir())
"""


def place(tmp_path: Path, *words: str, **variables: str) -> str:
    """Return where torch's compiler keeps its code once a network is to be compiled."""
    given = {k: v for k, v in os.environ.items() if k != VARIABLE}
    environment = {**given, "LUDUS_CACHE": str(tmp_path / "cache"), **variables}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, *words]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def test_it_is_in_the_cache_folder(tmp_path: Path) -> None:
    assert place(tmp_path) == str(tmp_path / "cache" / "compiled")


def test_it_is_there_too_where_the_compiler_was_imported_before(tmp_path: Path) -> None:
    assert place(tmp_path, "early") == str(tmp_path / "cache" / "compiled")


def test_a_place_that_the_user_gave_stays(tmp_path: Path) -> None:
    assert place(tmp_path, **{VARIABLE: str(tmp_path / "own")}) == str(tmp_path / "own")
