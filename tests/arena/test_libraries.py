"""What the libraries of the arena do when they are imported stays with the arena."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import multiprocessing
import ludus
{before}
ludus.example("vanilla_ppo")
ludus.TensorDictRlTrainer
print(multiprocessing.get_start_method(allow_none=True))
"""


@pytest.mark.parametrize(
    ("before", "expected"),
    [("", "None"), ("multiprocessing.set_start_method('forkserver')", "forkserver")],
)
def test_how_a_script_starts_its_processes_is_left_to_the_script(
    before: str, expected: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT.format(before=before)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-1] == expected
