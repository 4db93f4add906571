"""Verify exact resume of a user's config or script: kill it, resume it, compare every byte at the end.

The result is `proved`; `expected`, if nothing contradicts it but no kill came where it would show; or `no`,
with the reasons.
"""

from __future__ import annotations

import itertools
import random
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from ludus.config.base import TrainerConfig, read_config
from ludus.config.registry import find
from ludus.core.errors import LudusError
from ludus.core.exactness import Exact
from ludus.session.build import build_trainer
from ludus.show.terminal import printable, tell
from ludus.store import proofs
from ludus.store.directory import last_ending, read_lines
from ludus.store.local import LocalStorage
from ludus.testing import trainers
from ludus.testing.differences import differences
from ludus.testing.subjects import Config, ContractSubject, Failed, Script

_POINTS = ("segments", "state", "tensors", "manifest", "renamed", "collected")
_COLOURS = {Exact.PROVED: "green", Exact.EXPECTED: "yellow", Exact.NO: "red"}


@dataclass(frozen=True)
class Verdict:
    """Result for a config or a script."""

    word: Exact
    reasons: Sequence[str] = field(default_factory=tuple)
    """Why it is not proved, or what proved it."""

    def show(self, console: Console) -> None:
        """Print it."""
        text = escape(printable("; ".join(self.reasons)))
        console.print(f"[{_COLOURS[self.word]}]{self.word}[/]: {text}", soft_wrap=True)


def verify_config(
    config: str, overrides: Sequence[str], *, num_kills: int, seed: int, plugins: Sequence[str]
) -> bool:
    """Print what is done and found; return whether the config passed."""
    console = Console(highlight=False)
    checked = _logged_here(read_config(config, [*overrides, "settings.display=none"], tell=tell))
    with tempfile.TemporaryDirectory(prefix="ludus-verify-") as folder:
        root = Path(folder)
        # A copy, so that editing the file meanwhile does not matter.
        copy = root / "config.yaml"
        copy.write_text(checked.to_yaml(), encoding="utf-8")
        console.print("state: looking for attributes that change but are in no part")
        try:
            trainers.check_all_state_is_declared(lambda: build_trainer(checked), root / "declared")
        except AssertionError as error:
            verdict = Verdict(Exact.NO, [str(error)])
        else:
            campaign = Campaign(Config(str(copy), plugins), root, num_kills, seed, console)
            verdict = campaign.verdict()
    verdict.show(console)
    return verdict.word is Exact.PROVED


def _logged_here(config: TrainerConfig) -> TrainerConfig:
    """Return the config without loggers that send the runs elsewhere, where nobody wants trial runs."""
    sections: Sequence[Any] = config.settings.loggers
    kept = [one for one in sections if not hasattr(find("logger", one.kind), "check")]
    changed: TrainerConfig = config.replace(**{"settings.loggers": kept})
    return changed


def verify_script(
    script: str, arguments: Sequence[str], *, num_kills: int, seed: int, plugins: Sequence[str]
) -> bool:
    """Print what is done and found; return whether all runs of the script passed."""
    console = Console(highlight=False)
    if not Path(script).is_file():
        raise LudusError(f"there is no script {script}; give the path of a Python file")
    with tempfile.TemporaryDirectory(prefix="ludus-verify-") as folder:
        subject = Script(script, arguments, plugins)
        verdict = Campaign(subject, Path(folder), num_kills, seed, console).verdict()
    verdict.show(console)
    return verdict.word is Exact.PROVED


class Campaign:
    """Compares one unbroken run with one that is killed repeatedly."""

    def __init__(
        self, subject: ContractSubject, root: Path, num_kills: int, seed: int, console: Console
    ) -> None:
        self._subject = subject
        self._unbroken, self._killed = root / "unbroken", root / "killed"
        self._again = root / "again"
        # Whether compiling pays off is decided by time, once: in the unbroken run.
        self._like = f"--like={self._unbroken}"
        self._num_kills = num_kills
        self._chance = random.Random(seed)
        self._console = console

    def verdict(self) -> Verdict:
        """Run, kill, resume and compare."""
        self._console.print("unbroken run: ", end="")
        started = time.monotonic()
        try:
            self._subject.run(self._unbroken)
        except Failed as error:
            self._console.print()
            raise LudusError(f"{self._subject.name} failed before any kill: {error}") from None
        seconds = time.monotonic() - started
        runs = self._subject.runs(self._unbroken)
        for run in runs:
            if (reason := _waits_for(run)) is not None:
                return Verdict(
                    Exact.EXPECTED,
                    [f"nothing proved: the run does not end by itself ({reason}); verify what waits"
                     " for nobody"],
                )  # fmt: skip
        totals = [trainers.count_boundaries(run) for run in runs]
        among = f" of {len(runs)} runs" if len(runs) > 1 else ""
        self._console.print(f"{sum(totals)} boundaries{among} in {seconds:.1f} s")
        try:
            num_done = self._kill(totals, seconds)
        except Failed as error:
            # Data that differ at each start are detected by the resume, which then refuses.
            reason = f"killed and started again, it fails: {error}"
            return Verdict(Exact.NO, [self._unlike_itself() or reason])
        return self._judged(runs, totals, num_done)

    def _kill(self, totals: Sequence[int], seconds: float) -> int:
        """Kill in a chain, at boundaries, inside the writer and at random times; return their number."""
        # Enough checkpoints for a kill to return to one; their number does not affect the result.
        often = max(1, sum(totals) // (25 * len(totals)))
        num_done, ways = 0, itertools.cycle((1, 2, 0))
        for run, boundary, is_sure in self._instants(totals):
            way, delay = 0 if is_sure else next(ways), None
            words = [*self._subject.saving(often), self._like]
            if way == 0:
                among = f" of run {run + 1}" if len(totals) > 1 else ""
                self._console.print(f"kill at boundary {boundary}{among}")
                words += self._subject.at_boundary(run, boundary)
            elif way == 1:
                point = self._chance.choice(_POINTS)
                self._console.print(f"kill in the checkpoint writer, at '{point}'")
                words.append(f"--at-point={point}")
            else:
                delay = self._chance.uniform(0.4, 0.7) * seconds
                self._console.print(f"kill after {delay:.1f} s")
            is_over = self._subject.run(self._killed, words, may_die=True, seconds=delay)
            num_done += not is_over
            if is_over:
                self._console.print("  it did not strike: the run had ended before")
        self._subject.run(self._killed, [*self._subject.saving(often), self._like])
        return num_done

    def _instants(self, totals: Sequence[int]) -> list[tuple[int, int, bool]]:
        """Return runs and boundaries in order, and whether each is the one kill that every run must get.

        That one comes after the first third, when there is a checkpoint to return to.
        """
        sure = [
            (run, self._chance.randint(min(total, total // 3 + 1), max(1, total - 1)), True)
            for run, total in enumerate(totals)
        ][: self._num_kills]
        places = [(run, at + 1, False) for run, total in enumerate(totals) for at in range(total)]
        num_more = min(self._num_kills - len(sure), len(places))
        return sorted([*sure, *self._chance.sample(places, k=num_more)])

    def _judged(self, runs: Sequence[Path], totals: Sequence[int], num_done: int) -> Verdict:
        """Return the verdict on the ends of all runs, and record what was proved or disproved."""
        ends = self._subject.runs(self._killed)
        reasons = [reason for run in (*runs, *ends) for reason in _against(run)]
        if (differ := self._differences(self._killed)) is not None:
            reason = f"{_times(num_done)}, it ends with other bytes: {differ}"
            reasons = [self._unlike_itself() or reason, *reasons]
        if reasons:
            for run in runs:
                proofs.forget(run)
            return Verdict(Exact.NO, list(dict.fromkeys(reasons)))
        among = f", {len(runs)} runs" if len(runs) > 1 else ""
        for run, end, total in zip(runs, ends, totals, strict=True):
            if not any(0 < at < total for at in _resumed_at(end)):
                named = f" of {run.name}" if among else ""
                return Verdict(
                    Exact.EXPECTED,
                    [f"nothing proved: no kill came after the first checkpoint{named}; make the run longer,"
                     " or kill it more often with --kills"],
                )  # fmt: skip
        for run in runs:
            proofs.record(run, num_kills=num_done)
        return Verdict(Exact.PROVED, [f"{_times(num_done)}{among}, the same bytes at the end"])

    def _unlike_itself(self) -> str | None:
        """Run it once more without a kill; return a reason if that already ends differently."""
        try:
            self._subject.run(self._again, [self._like])
        except Failed:
            return None
        if (again := self._differences(self._again)) is None:
            return None
        return (
            f"two unbroken runs differ already ({again}); seed all that is drawn from before fit, and"
            " make what is computed repeat itself"
        )

    def _differences(self, other: Path) -> str | None:
        """Return how the first differing run below another directory differs from the unbroken one."""
        runs, others = (self._subject.runs(root) for root in (self._unbroken, other))
        names = [run.relative_to(self._unbroken) for run in runs]
        if names != [run.relative_to(other) for run in others]:
            return f"its runs: {len(runs)} at first, {len(others)} later"
        for run, found in zip(runs, others, strict=True):
            if differing := differences(run, found):
                among = f" (run {run.name})" if len(runs) > 1 else ""
                return f"{', '.join(differing)}{among}"
        return None


def _times(count: int) -> str:
    return "killed once" if count == 1 else f"killed {count} times"


def _waits_for(path: Path) -> str | None:
    """Return what an unbroken run waits for, if it has not reached its end."""
    last = last_ending(LocalStorage(path))
    if last is None:
        raise LudusError(
            f"the run {path.name} did not say how it ended: its events.jsonl was changed, or its process"
            " ended within fit; let it come to its end"
        )
    # The rest says where to answer, but this run is gone by the time it is read.
    reason = str(last.get("reason") or "it was interrupted by a signal").partition(":")[0]
    return reason if last["event"] == "interrupted" else None


def _against(path: Path) -> list[str]:
    """Return the reasons that a run itself gives against its exactness."""
    reasons: list[str] = (last_ending(LocalStorage(path)) or {}).get("inexact_because", [])
    return reasons


def _resumed_at(path: Path) -> list[int]:
    """Return the boundaries at which a run was resumed."""
    events = read_lines(LocalStorage(path), "events.jsonl")
    return [event["boundary"] for event in events if event["event"] == "resumed"]
