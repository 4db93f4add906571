"""`ludus train` killed by SIGKILL at random instants, in chains, and resumed: the same bytes at the end."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ludus.run.directory import read_lines
from ludus.run.storage import Storage
from ludus.testing.trainers import Ending, ending_of

# Accumulation, EMA, a schedule, early stopping, best model and milestones are all on.
CHANGES = [
    "max_epochs=25",
    "accumulate=2",
    "ema_decay=0.9",
    "milestone_every_epochs=5",
    "early_stopping.patience=6",
    "early_stopping.min_delta=0.01",
    "settings.display=none",
    "settings.threads=1",
    "settings.checkpoint.every_opt_steps=3",
]


def start(root: Path) -> subprocess.Popen[bytes]:
    """Train, or go on if there is a run: what a user would type."""
    if (root / "run" / "run.json").exists():
        words = ["resume", str(root / "run")]
    else:
        words = ["train", "configs/supervised.yaml", *CHANGES, "--root", str(root), "--run", "run"]
    return subprocess.Popen(
        [sys.executable, "-m", "ludus.cli", *words, "--json"],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(root: Path) -> Ending:
    child = start(root)
    _, errors = child.communicate()
    assert child.returncode == 0, errors.decode()
    return ending_of(root / "run")


def journal_size(root: Path) -> int:
    path = root / "run" / "events.jsonl"
    return path.stat().st_size if path.exists() else 0


def kill_at_random(root: Path, chance: random.Random, *, seconds: float) -> bool:
    """Kill a random while after the run began or went on; return whether there was one to kill.

    A process spends most of its life importing, where a kill finds nothing to harm: only one kill in
    eight falls there, the others wait until the journal says that the run is under way.
    """
    before = journal_size(root)
    child = start(root)
    is_early = chance.random() < 1 / 8
    while not is_early and child.poll() is None and journal_size(root) == before:
        time.sleep(0.005)
    try:
        child.communicate(timeout=chance.uniform(0, seconds))
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return True
    return False


def campaign(root: Path, *, num_kills: int, longest_chain: int, seed: int) -> tuple[int, int]:
    """Kill until enough kills were made; return how many runs and kills it took."""
    expected = finish(root / "unbroken")
    events = read_lines(Storage(root / "unbroken" / "run"), "events.jsonl")
    seconds = events[-1]["time"] - events[0]["time"]
    chance = random.Random(seed)
    runs = kills = 0
    while kills < num_kills:
        runs += 1
        here = root / f"run-{runs}"
        for _ in range(chance.randint(1, longest_chain)):
            kills += kill_at_random(here, chance, seconds=seconds)
        assert finish(here) == expected, f"run {runs}, killed, ended with other bytes"
    return runs, kills


def test_a_run_killed_a_few_times_ends_with_the_same_bytes(tmp_path: Path) -> None:
    _, kills = campaign(tmp_path, num_kills=2, longest_chain=2, seed=1)
    assert kills >= 2


@pytest.mark.slow
def test_fifty_kills_at_random_instants_in_chains_leave_no_trace(tmp_path: Path) -> None:
    runs, kills = campaign(tmp_path, num_kills=50, longest_chain=5, seed=2)
    print(f"\n{kills} kills in {runs} runs, every one exact")
    assert kills >= 50
