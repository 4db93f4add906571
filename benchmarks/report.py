"""Write one report of 50 runs of 100,000 log lines each: seconds, CPU seconds, memory and the page's size.

The runs are ten groups of five seeds, with a loss and a return in every record, an evaluation in every
hundredth, and as many records of times. The reference only parses the metrics, by `json.loads` of each line.
The logs are 1.2 GB, in the directory for temporary files.
"""

import json
import random
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks._harness import Case, Row, measure, say

NUM_RUNS, NUM_LINES, NUM_SEEDS = 50, 100_000, 5
WORK = f"{NUM_RUNS} runs of {NUM_LINES:,} lines"
FIGURES = {"seconds": "s", "cpu_seconds": "CPU s", "memory": "MB", "page": "MB of HTML"}


def run(rounds: int) -> list[Row]:
    """Return the time, the memory and the size of the page, each of fresh processes."""
    with tempfile.TemporaryDirectory(prefix="ludus-report-") as root:
        say(f"writing {WORK}")
        write_runs(Path(root), num_runs=NUM_RUNS, num_lines=NUM_LINES)
        cases = [
            Case(f"{WORK}: {name}", "ludus", unit, "ludus", __name__, name, {"root": root})
            for name, unit in FIGURES.items()
        ]
        parsed = "seconds_to_parse"
        work = f"{WORK}: cpu_seconds"
        cases.append(
            Case(work, "json.loads", "CPU s", "reference", __name__, parsed, {"root": root})
        )
        return measure(cases, rounds)


def write_runs(root: Path, *, num_runs: int, num_lines: int) -> None:
    """Write directories like those of finished runs, with the logs that PPO would write."""
    for index in range(num_runs):
        place, seed = root / f"run-{index:02}", index % NUM_SEEDS
        place.mkdir()
        config = {"kind": "ppo", "seed": seed, "gamma": 0.9 + index // NUM_SEEDS / 100}
        note = {"format": 1, "kind": "ppo", "name": place.name, "seed": seed, "config": config}
        (place / "run.json").write_text(
            json.dumps({**note, "created": "2026-11-15T11:00:00+00:00"})
        )
        (place / "config.yaml").write_text("kind: ppo\n")
        ends = [{"time": 0.0, "event": "started"}, {"time": 9.0, "event": "finished"}]
        (place / "events.jsonl").write_text("".join(json.dumps(end) + "\n" for end in ends))
        draw = random.Random(index)
        with (place / "metrics.jsonl").open("w") as file:
            file.writelines(_metrics(step, draw) for step in range(1, num_lines + 1))
        with (place / "timing.jsonl").open("w") as file:
            file.writelines(_times(step, draw) for step in range(1, num_lines + 1))


def _metrics(step: int, draw: random.Random) -> str:
    record = f'{{"env_steps": {128 * step}, "opt_steps": {4 * step}, "train/loss": {draw.random()}'
    record += f', "train/return": {step / 1000 + 30 * draw.random()}'
    return record + ("}\n" if step % 100 else f', "eval/return": {step / 900 + draw.random()}}}\n')


def _times(step: int, draw: random.Random) -> str:
    record = f'{{"env_steps": {128 * step}, "opt_steps": {4 * step}, "seconds": {step / 100:.6f}'
    record += f', "cpu_seconds": {step / 90:.6f}'
    return record + f', "env_steps_per_second": {12_800 + draw.random():.6f}}}\n'


def seconds(root: str) -> float:
    """Return the seconds of one report."""
    return _measured(root, time.perf_counter)


def cpu_seconds(root: str) -> float:
    """Return the CPU seconds of one report."""
    return _measured(root, time.process_time)


def _measured(root: str, clock: Callable[[], float]) -> float:
    begin = clock()
    _report(root)
    return clock() - begin


def memory(root: str) -> float:
    """Return the largest resident memory of a process that writes the report."""
    _report(root)
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def page(root: str) -> float:
    """Return the size of the page."""
    return _report(root).stat().st_size / 1e6


def _report(root: str) -> Path:
    # Its import is part of what a user waits for.
    from ludus.show.report.page import write_report

    return write_report(sorted(Path(root).glob("run-*")), Path(root) / "report.html")


def seconds_to_parse(root: str) -> float:
    """Return the CPU seconds of parsing the metrics alone."""
    begin = time.process_time()
    last: dict[str, Any] = {}
    for place in Path(root).glob("run-*"):
        with (place / "metrics.jsonl").open("rb") as file:
            for line in file:
                last = json.loads(line)
    assert last
    return time.process_time() - begin
