"""`ludus train` killed by SIGKILL at random instants, in chains, and resumed: the same bytes at the end."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from ludus.store.directory import read_lines
from ludus.store.local import LocalStorage
from ludus.testing.differences import Ending, ending_of
from tests.faults.warm import WarmProcess

ROOT = Path(__file__).parents[2]
PRIORITISED = (
    "{alpha: 0.6, beta: 0.4, eps: 1.0e-6, normalise: all,"
    " beta_schedule: {kind: linear, warmup_steps: 0, final: 1.0, total_steps: null}}"
)
# Everything that has state is on.
CHANGES = {
    "supervised": [
        "max_epochs=25",
        "accumulate=2",
        "ema_decay=0.9",
        "keep_every_epochs=5",
        "evaluation.keep=3",
        "evaluation.patience=6",
        "evaluation.min_delta=0.01",
        "settings.checkpoint.every_opt_steps=3",
    ],
    # Eight envs, priorities, n steps, and evaluations in a process of their own.
    "dqn": [
        "steps.max_opt_steps=3000",
        "steps.evaluate_every_opt_steps=700",
        "steps.keep_every_opt_steps=1000",
        f"replay.prioritised={PRIORITISED}",
        "replay.capacity=3000",
        "evaluation.asynchronous=true",
        "evaluation.timeout_seconds=600.0",
        "evaluation.target=null",
        "settings.checkpoint.every_opt_steps=40",
    ],
    "iqn": [
        "steps.max_opt_steps=1200",
        "steps.evaluate_every_opt_steps=500",
        "evaluation.target=null",
        "settings.checkpoint.every_opt_steps=40",
    ],
    "ppo": [
        "max_env_steps=12000",
        "normalise={observations: true, rewards: true, clip: 10.0}",
        "evaluation.asynchronous=true",
        "evaluation.timeout_seconds=600.0",
        "evaluation.target=null",
        "settings.checkpoint.every_opt_steps=30",
    ],
    "fused_ppo": [
        "max_rounds=60",
        "fused=false",
        "settings.checkpoint.every_opt_steps=25",
    ],
    "vanilla_ppo": [
        "max_iterations=12",
        "rl.rollouts_per_iteration=64",
        "rl.minibatch_size=48",
        "scenario.train_size=128",
        "scenario.validation_size=32",
        "scenario.test_size=64",
        "evaluation.episodes=32",
        "evaluate_every_iterations=4",
        "log_every_iterations=1",
        "pretraining.iterations=2",
        "pretraining.batch_size=32",
        "settings.checkpoint.every_opt_steps=25",
    ],
    # Both roles learn, meet scripted players too, and are evaluated and kept on the way.
    "fused_dqn": [
        "max_rounds=400",
        "host.net_arch=[64, b, r32]",
        "host.initial_rollout_size=100",
        "host.rollout_size=50",
        "host.replay_capacity=3000",
        "agent.sync_target_every_rounds=7",
        "keep_every_rounds=150",
        "evaluate_every_rounds=120",
        "evaluation.episodes=50",
        "settings.checkpoint.every_opt_steps=40",
    ],
    # Dropout draws while the pool is scored; the weights go on from round to round, with their average.
    "active": [
        "max_rounds=6",
        "max_epochs=12",
        "strategy={kind: bald, draws: 5, shortlist: 100}",
        "round_start=warm",
        "ema_decay=0.9",
        "evaluation.patience=4",
        "settings.checkpoint.every_opt_steps=6",
    ],
    "sac": [
        "steps.max_opt_steps=300",
        "steps.evaluate_every_opt_steps=120",
        "num_envs=2",
        "network.widths=[64, 64]",
        "evaluation.asynchronous=true",
        "evaluation.timeout_seconds=600.0",
        "settings.checkpoint.every_opt_steps=15",
    ],
}


# The same, short enough for every day.
SHORTER = {
    "supervised": ["max_epochs=10", "keep_every_epochs=3", "model.blocks=[4, 8]"],
    "dqn": [
        "steps.max_opt_steps=900",
        "steps.evaluate_every_opt_steps=300",
        "steps.keep_every_opt_steps=400",
    ],
}


class Forked:
    """A command in a child of the warm process, as `subprocess.Popen` would show it."""

    def __init__(self, warm: WarmProcess, words: list[str]) -> None:
        self._warm = warm
        variables = dict(os.environ)
        self._pid = warm.start(
            "plain_command", words=words, cwd=str(ROOT), stdin="", variables=variables
        )
        self._seen = psutil.Process(self._pid)
        self.returncode = 0

    def poll(self) -> int | None:
        return 0 if self._seen.status() == psutil.STATUS_ZOMBIE else None

    def communicate(self, timeout: float = math.inf) -> tuple[bytes, bytes]:
        end = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("ludus", timeout)
            time.sleep(0.002)
        self.returncode = self._warm.wait(self._pid)
        return b"", self._warm.output(self._pid).encode()

    def kill(self) -> None:
        os.kill(self._pid, signal.SIGKILL)


class Campaign:
    """One kind of run in one place, begun in new processes, or in children of the warm one and shorter."""

    def __init__(self, kind: str, warm: WarmProcess | None = None) -> None:
        self.kind, self.warm = kind, warm

    def start(self, root: Path) -> subprocess.Popen[bytes] | Forked:
        """Train, or go on if there is a run: what a user would type."""
        if (root / "run" / "run.json").exists():
            words = ["resume", str(root / "run")]
        else:
            changes = [*CHANGES[self.kind], "settings.display=none", "settings.threads=1"]
            changes += SHORTER[self.kind] if self.warm else []
            config = f"configs/{self.kind}.yaml"
            words = ["train", config, *changes, "--root", str(root), "--run", "run"]
        words.append("--json")
        if self.warm:
            return Forked(self.warm, words)
        return subprocess.Popen(
            [sys.executable, "-m", "ludus.cli", *words],
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )

    def finish(self, root: Path) -> Ending:
        child = self.start(root)
        _, errors = child.communicate()
        assert child.returncode == 0, errors.decode()
        return ending_of(root / "run")

    def kill_at_random(self, root: Path, chance: random.Random, *, seconds: float) -> bool:
        """Kill a random while after the run began or went on; return whether there was one to kill.

        A process spends most of its life importing, where a kill finds nothing to harm: only one kill in
        eight falls there, the others wait until the journal says that the run is under way.
        """
        before = journal_size(root)
        child = self.start(root)
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

    def run(self, root: Path, *, num_kills: int, longest_chain: int, seed: int) -> tuple[int, int]:
        """Kill until enough kills were made; return how many runs and kills it took."""
        expected = self.finish(root / "unbroken")
        events = read_lines(LocalStorage(root / "unbroken" / "run"), "events.jsonl")
        seconds = events[-1]["time"] - events[0]["time"]
        chance = random.Random(seed)
        runs = kills = 0
        while kills < num_kills:
            runs += 1
            here = root / f"run-{runs}"
            for _ in range(chance.randint(1, longest_chain)):
                kills += self.kill_at_random(here, chance, seconds=seconds)
            assert self.finish(here) == expected, f"run {runs}, killed, ended with other bytes"
        return runs, kills


def journal_size(root: Path) -> int:
    path = root / "run" / "events.jsonl"
    return path.stat().st_size if path.exists() else 0


def test_a_run_killed_a_few_times_ends_with_the_same_bytes(
    tmp_path: Path, warm: WarmProcess
) -> None:
    _, kills = Campaign("supervised", warm).run(tmp_path, num_kills=2, longest_chain=2, seed=1)
    assert kills >= 2


def test_an_agent_killed_in_the_middle_of_its_episodes_ends_with_the_same_bytes(
    tmp_path: Path, warm: WarmProcess
) -> None:
    _, kills = Campaign("dqn", warm).run(tmp_path, num_kills=1, longest_chain=1, seed=3)
    assert kills >= 1


@pytest.mark.slow
@pytest.mark.parametrize("kind", CHANGES)
def test_kills_at_random_instants_in_chains_leave_no_trace(kind: str, tmp_path: Path) -> None:
    num_kills = 50 if kind == "supervised" else 25
    runs, kills = Campaign(kind).run(tmp_path, num_kills=num_kills, longest_chain=5, seed=2)
    print(f"\n{kind}: {kills} kills in {runs} runs, every one exact")
    assert kills >= num_kills
