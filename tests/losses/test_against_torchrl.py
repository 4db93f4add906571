"""ludus' losses equal TorchRL's on the same batch; in a process of its own, see below."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_every_loss_that_torchrl_has_too_is_the_same() -> None:
    # Importing TorchRL changes how this process starts others, for all tests that come after.
    cases = Path(__file__).with_name("torchrl_comparison.py")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "0",
        "-p",
        "no:cacheprovider",
        str(cases),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
