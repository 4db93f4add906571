"""Prove exact resume on a user's own config: kill the run, resume it, compare every byte at the end."""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from ludus.config.base import read_config
from ludus.core.errors import LudusError
from ludus.session.build import build_trainer
from ludus.show.terminal import printable, tell
from ludus.store.directory import read_lines
from ludus.store.local import LocalStorage
from ludus.testing import trainers
from ludus.testing.victim import RUN

_POINTS = ("segments", "state", "tensors", "manifest", "renamed", "collected")


def verify_config(
    config: str, overrides: Sequence[str], *, num_kills: int, seed: int, plugins: Sequence[str]
) -> bool:
    """Return whether the config passed, having printed what was done and found."""
    console = Console(highlight=False)
    words = [f"--plugin={plugin}" for plugin in plugins]
    checked = read_config(config, [*overrides, "settings.display=none"], tell=tell)
    with tempfile.TemporaryDirectory(prefix="ludus-verify-") as folder:
        root = Path(folder)
        # A copy, so that an edit of the file in the meantime does not matter.
        config = str(root / "config.yaml")
        Path(config).write_text(checked.to_yaml(), encoding="utf-8")
        console.print("state: looking for attributes that change but are in no part")
        try:
            trainers.check_all_state_is_declared(lambda: build_trainer(checked), root / "declared")
        except AssertionError as error:
            console.print(f"[red]failed[/red]: {escape(printable(str(error)))}")
            return False
        console.print("unbroken run: ", end="")
        started = time.monotonic()
        _run(config, root / "unbroken", words)
        seconds = time.monotonic() - started
        if (reason := _waits_for(root / "unbroken" / RUN)) is not None:
            console.print(
                f"[red]nothing proved[/red]: the run does not end by itself ({escape(printable(reason))});"
                " verify it with a config that waits for nobody"
            )
            return False
        total = trainers.count_boundaries(root / "unbroken" / RUN)
        console.print(f"{total} boundaries in {seconds:.1f} s")
        expected = trainers.ending_of(root / "unbroken" / RUN)
        # Enough checkpoints that a kill has one to go back to; how often they are made decides nothing.
        words.append(f"settings.checkpoint.every_stages={max(1, total // 25)}")
        num_done = _kill(config, root / "killed", words, num_kills, seed, total, seconds, console)
        _run(config, root / "killed", words)
        found = trainers.ending_of(root / "killed" / RUN)
        resumed = _resumed_at(root / "killed" / RUN)
    if not any(0 < boundary < total for boundary in resumed):
        console.print(
            "[red]nothing proved[/red]: no kill came after the first checkpoint; make the run longer"
        )
        return False
    compared = ("state", "metrics", "models")
    differ = [name for name in compared if getattr(found, name) != getattr(expected, name)]
    if differ:
        console.print(f"[red]not exact[/red]: after {num_done} kills {', '.join(differ)} differ")
        return False
    console.print(f"[green]exact[/green]: killed {num_done} times, the same bytes at the end")
    return True


def _kill(
    config: str,
    root: Path,
    words: Sequence[str],
    num_kills: int,
    seed: int,
    total: int,
    seconds: float,
    console: Console,
) -> int:
    """Kill one run in a chain, at boundaries, inside the writer and at random times; count the kills."""
    chance = random.Random(seed)
    boundaries = sorted(chance.sample(range(1, total + 1), k=min(num_kills, total)))
    num_done = 0
    for number, boundary in enumerate(boundaries):
        way = number % 3
        if way == 0:
            console.print(f"kill at boundary {boundary}")
            done = _run(config, root, [*words, f"--at-boundary={boundary}"], may_die=True)
        elif way == 1:
            point = chance.choice(_POINTS)
            console.print(f"kill in the checkpoint writer, at '{point}'")
            done = _run(config, root, [*words, f"--at-point={point}"], may_die=True)
        else:
            delay = chance.uniform(0.4, 0.7) * seconds
            console.print(f"kill after {delay:.1f} s")
            done = _run(config, root, words, may_die=True, seconds=delay)
        num_done += not done
        if done:
            console.print("  it did not strike: the run had ended before")
    return num_done


def _waits_for(path: Path) -> str | None:
    """Return for what an unbroken run waits, if it has not come to its end."""
    last = read_lines(LocalStorage(path), "events.jsonl")[-1]
    # What follows is where to answer, and this run is gone when it is read.
    return last["reason"].partition(":")[0] if last["event"] == "interrupted" else None


def _resumed_at(path: Path) -> list[int]:
    """Return the boundaries at which a run was taken up again."""
    events = read_lines(LocalStorage(path), "events.jsonl")
    return [event["boundary"] for event in events if event["event"] == "resumed"]


def _run(
    config: str,
    root: Path,
    words: Sequence[str],
    *,
    may_die: bool = False,
    seconds: float | None = None,
) -> bool:
    """Run or resume in a process of its own; return whether it came to its end."""
    command = [sys.executable, "-m", "ludus.testing.victim", config, str(root), *words]
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        _, errors = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.communicate()
        return False
    if child.returncode != 0 and not (may_die and child.returncode == -9):
        lines = errors.decode(errors="replace").strip().splitlines()
        raise LudusError(f"the run failed: {lines[-1] if lines else child.returncode}")
    return child.returncode == 0
