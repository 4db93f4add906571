"""A command whose standard streams are closed does its work all the same."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.small_run import events
from tests.rl.small import small


@pytest.mark.parametrize("closed", ["<&-", "<&- >&- 2>&-"])
def test_a_run_with_workers_ends_well_where_the_standard_streams_are_closed(
    tmp_path: Path, closed: str
) -> None:
    config = small("dqn", **{"settings.workers": 1, "settings.display": "auto"})
    (tmp_path / "small.yaml").write_text(config.to_yaml())
    words = [sys.executable, "-m", "ludus.cli", "train", str(tmp_path / "small.yaml")]
    command = shlex.join([*words, "--root", str(tmp_path), "--run", "run"])
    done = subprocess.run(f"{command} {closed}", shell=True, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr.decode()
    assert events(tmp_path / "run")[-1]["event"] == "finished"
