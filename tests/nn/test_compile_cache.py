"""Compiled code is kept in ludus's cache folder, whoever imported torch's compiler before."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ludus.nn.engines.compiled import CACHE_VARIABLE as VARIABLE

SCRIPT = """
import json, os, sys, torch
from torch import nn

def place(words):
    if "early" in words:
        torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)  # imports the compiler
    assert ("torch._inductor" in sys.modules) == ("early" in words)
    from ludus.nn.engines.guarded import GuardedCall
    GuardedCall(nn.Linear(2, 2).forward)
    from torch._inductor.runtime.cache_dir_utils import cache_dir
    print(json.dumps([words, cache_dir()]), flush=True)

# Each in a fork of a process that has imported torch, and no compiler.
for words in json.loads(sys.argv[1]):
    if os.fork() == 0:
        os.environ.update(word.split("=", 1) for word in words if "=" in word)
        place(words)
        os._exit(0)
    assert os.wait()[1] == 0
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("compiled")


@pytest.fixture(scope="module")
def places(folder: Path) -> dict[str, str]:
    """Return where torch's compiler keeps its code once a network is to be compiled, by what was given."""
    given = {k: v for k, v in os.environ.items() if k != VARIABLE}
    environment = {**given, "LUDUS_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    words = json.dumps([[], ["early"], [f"{VARIABLE}={folder / 'own'}"]])
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT, words]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return {" ".join(words).partition("=")[0]: place for words, place in found}


def test_it_is_in_the_cache_folder(folder: Path, places: dict[str, str]) -> None:
    assert places[""] == str(folder / "cache" / "compiled")


def test_it_is_there_too_where_the_compiler_was_imported_before(
    folder: Path, places: dict[str, str]
) -> None:
    assert places["early"] == str(folder / "cache" / "compiled")


def test_a_place_that_the_user_gave_stays(folder: Path, places: dict[str, str]) -> None:
    assert places[VARIABLE] == str(folder / "own")
