"""Measure several systems on the same work, each in fresh processes of one thread, turn by turn.

measure
  for each round             A B C, A B C, so that a slow minute of the machine touches all
    for each case            one (work, system)
      run_child              a fresh process in an empty folder, one thread, one JSON line
  summarise                  median and spread over the rounds, ratios to the peers
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

REPOSITORY = Path(__file__).resolve().parents[1]
CHILD_LIMIT_S = 900
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
)
REPORTED_PACKAGES = (
    "ludus",
    "torch",
    "numpy",
    "pytorch-ignite",
    "accelerate",
    "transformers",
    "lightning",
    "gymnasium",
    "stable_baselines3",
    "tianshou",
    "torchrl",
    "tensordict",
    "pettingzoo",
    "skrl",
    "scikit-learn",
    "scikit-activeml",
    "modAL-python",
    "baal",
    "optuna",
    "ray",
)

Role = Literal["ludus", "peer", "reference"]
"""A peer is another library; a reference, such as a plain loop, is shown but is no peer."""


class BenchmarkError(RuntimeError):
    """A measurement ended in an error, so the table would be wrong without a word about it."""


@dataclass(frozen=True)
class Row:
    """One line of a benchmark's table and of its JSON file."""

    work: str
    """What was done; only rows of the same work are compared."""
    system: str
    """Who did it."""
    value: float
    """The median over the rounds, in `unit`."""
    unit: str
    """What the value and the spread are measured in."""
    spread: float
    """The largest value of the rounds less the smallest, in `unit`."""
    ratio: float | None
    """How many times better than the best peer of the same work, so larger is better.

    The best peer has 1.0, every other peer less. A ludus row above 1.0 beats every peer. A
    reference is never the best peer, so it may have more than 1.0. Without a peer it is None.
    """
    baseline: str | None = None
    """The one system that the benchmark compares all others with, where it names one."""
    ratio_to_baseline: float | None = None
    """How many times better than the baseline at the same work; None where it was not measured."""
    values: tuple[float, ...] = ()
    """The value of every round, in order, in `unit`."""


@dataclass(frozen=True, eq=False)
class Case:
    """One system doing one work: the function that measures it, and what that function needs."""

    work: str
    """What is done; only cases of the same work are compared."""
    system: str
    """Who does it."""
    unit: str
    """What the function's answer is measured in."""
    role: Role
    """Whether the system is ludus, a peer, or a reference."""
    module: str
    """The module that holds the function, as `__name__` gives it."""
    function: str
    """The name of a function that measures once and returns a float."""
    arguments: Mapping[str, bool | int | float | str] = field(default_factory=dict)
    """The function's keyword arguments, which must survive JSON."""
    requires: tuple[str, ...] = ()
    """The distributions, by their names on PyPI, without which the case is left out."""
    is_larger_better: bool = False
    """Whether a larger value is better, as for a rate; a time is better when smaller."""


def measure(cases: Sequence[Case], rounds: int, *, baseline: str | None = None) -> list[Row]:
    """Measure every case once a round, in turn, and return a row for each that could be measured.

    The rows compare with the best peer, and with the system named by `baseline` where there is one.
    A case that is left out, because a package is missing or its code is not written yet, says so
    in one line on stderr. Raises BenchmarkError when a measurement fails in any other way.
    """
    values: dict[Case, list[float]] = {case: [] for case in cases if is_installed(case)}
    for round_index in range(rounds):
        for case in list(values):
            answer = run_child(case)
            if isinstance(answer, str):
                say(f"{case.work}: {case.system} is left out: {answer}")
                del values[case]
                continue
            where = f"round {round_index + 1} of {rounds}"
            say(f"{where}: {case.work}, {case.system}: {answer:.4g} {case.unit}")
            values[case].append(answer)
    return summarise(values, baseline=baseline)


def run_child(case: Case) -> float | str:
    """Measure the case once in a fresh process; a string says why it has to be left out."""
    answer = ask_child(case)
    return answer if isinstance(answer, str) else float(answer)


def ask_child(case: Case) -> Any:
    """Return what the case's function returned, as JSON brought it; a string as `run_child`."""
    # Some peers search sys.path at every step, so the child's is kept as short as a user's: with
    # -P the empty folder is not on it, and this repository stands where the user's script would.
    command = [sys.executable, "-P", "-m", "benchmarks._child", case.module, case.function]
    name = f"{case.work}: {case.system}"
    with tempfile.TemporaryDirectory(prefix="ludus-bench-") as folder:
        try:
            child = subprocess.run(
                [*command, json.dumps(dict(case.arguments))],
                cwd=folder,
                env=_child_environment(),
                capture_output=True,
                text=True,
                timeout=CHILD_LIMIT_S,
            )
        except subprocess.TimeoutExpired as late:
            raise BenchmarkError(f"{name} did not end within {CHILD_LIMIT_S} s") from late
    if child.returncode != 0:
        raise BenchmarkError(f"{name} ended with {child.returncode}:\n{child.stderr[-3000:]}")
    answer = json.loads(child.stdout.splitlines()[-1])
    return answer["left_out"] if "left_out" in answer else answer["value"]


def summarise(values: Mapping[Case, Sequence[float]], *, baseline: str | None = None) -> list[Row]:
    """Return one row a case, in the order given, from the values of its rounds."""
    medians = {case: statistics.median(rounds) for case, rounds in values.items()}
    rows = []
    for case, median in medians.items():
        same_work = [(other, them) for other, them in medians.items() if other.work == case.work]
        peers = [them for other, them in same_work if other.role == "peer"]
        named = [them for other, them in same_work if other.system == baseline]
        rows.append(
            Row(
                work=case.work,
                system=case.system,
                value=median,
                unit=case.unit,
                spread=max(values[case]) - min(values[case]),
                ratio=_ratio(median, peers, is_larger_better=case.is_larger_better),
                baseline=baseline,
                ratio_to_baseline=_ratio(median, named, is_larger_better=case.is_larger_better),
                values=tuple(values[case]),
            )
        )
    return rows


def describe_machine() -> str:
    """Return the machine, the versions and the date, for the lines under a table."""
    versions = [f"python {platform.python_version()}"]
    versions += [f"{name} {_version(name) or 'not installed'}" for name in REPORTED_PACKAGES]
    load = ", ".join(f"{load:.1f}" for load in os.getloadavg())
    return "\n".join(
        (
            f"machine: {_processor()}, {os.cpu_count()} CPUs, {platform.platform()}, load {load}",
            f"versions: {', '.join(versions)}",
            f"date: {datetime.now(UTC).isoformat(timespec='seconds')}",
        )
    )


def _ratio(value: float, peers: Sequence[float], *, is_larger_better: bool) -> float | None:
    """Return how many times better the value is than the best of the peers, or None without one."""
    if not peers:
        return None
    return value / max(peers) if is_larger_better else min(peers) / value


def is_installed(case: Case) -> bool:
    """Say whether the packages of the case are here, with a line on stderr when they are not."""
    missing = [name for name in case.requires if _version(name) is None]
    if missing:
        say(f"{case.work}: {case.system} is left out: {', '.join(missing)} is not installed")
    return not missing


def _child_environment() -> dict[str, str]:
    """Return this process's environment with one thread, this repository, and no network."""
    others = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    paths = dict.fromkeys([str(REPOSITORY), *filter(None, others)])
    return {
        **os.environ,
        **dict.fromkeys(THREAD_VARIABLES, "1"),
        "PYTHONPATH": os.pathsep.join(paths),
        "HF_HUB_OFFLINE": "1",
    }


def _version(distribution: str) -> str | None:
    """Return the installed version of a distribution, or None when it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _processor() -> str:
    """Return the processor's name as Linux gives it, or its architecture elsewhere."""
    listing = Path("/proc/cpuinfo")
    lines = listing.read_text().splitlines() if listing.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def say(line: str) -> None:
    """Print a line of progress, away from the table."""
    print(line, file=sys.stderr, flush=True)
