"""`ludus train CONFIG --seeds 0-4`: a group of runs, and the mean of their scores."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from rich.table import Table
from rich.text import Text

from ludus.config.base import TrainerConfig, read_config
from ludus.config.seed_list import read_seeds
from ludus.core.errors import ConfigError, LudusError
from ludus.show.counts import progress
from ludus.show.tables import print_table
from ludus.show.terminal import clean, pass_on, say, tell
from ludus.store.directory import run_storage
from ludus.store.groups import ONLY_GROUP
from ludus.store.strict_json import one_line
from ludus.sweep.result_lines import interval
from ludus.sweep.seed_group import SeedGroup
from ludus.sweep.seed_results import SeedsResult


@dataclass(frozen=True)
class SeedsCommand:
    """The words of the command, which are also the way to go on."""

    config: str
    overrides: Sequence[str]
    root: str
    run: str | None
    seeds: str
    jobs: int | None
    plugins: Sequence[str]
    has_seed: bool
    """Whether --seed was given too."""
    start: str | None = None
    """The run whose weights all of them start from (--from)."""

    def train(self, *, as_json: bool) -> None:
        """Train the group, and print its scores; raise LudusError if a run failed."""
        seeds, config = read_seeds(self.seeds), self._read()
        name = self.run or config.name
        group = SeedGroup(config, seeds, root=self.root, name=name, num_jobs=self.jobs or 1)
        result = group.train(show_on="stderr" if as_json else "stdout")
        if as_json:
            pass_on(one_line(result.as_json()) + "\n")
        else:
            print_seeds(result)
            if result.is_over and not result.failed:
                where = [] if self.root == "runs" else ["--root", self.root]
                is_run = run_storage(self.root, result.group).exists("run.json")
                word = f"{ONLY_GROUP}{result.group}" if is_run else result.group
                say(f"next: {shlex.join(['ludus', 'report', word, *where])}")
        if result.failed:
            raise LudusError(f"{_failures(result)}; `{self.way_to_go_on()}` tries again")
        if not (result.is_over or as_json):
            say(f"interrupted; to go on: {self.way_to_go_on()}")

    def _read(self) -> TrainerConfig:
        config = read_config(self.config, self.overrides, tell=tell, start=self.start)
        keys = [text.partition("=")[0].strip() for text in self.overrides]
        if self.has_seed or "seed" in keys:
            raise ConfigError(
                f"the seeds are given twice, by --seeds {self.seeds} and by"
                f" {'--seed' if self.has_seed else 'seed=...'}; leave one out"
            )
        return config

    def way_to_go_on(self) -> str:
        """Return the same command."""
        words = ["ludus", "train", self.config, *self.overrides, "--seeds", self.seeds]
        words += [] if self.start is None else ["--from", self.start]
        words += [] if self.jobs is None else ["--jobs", str(self.jobs)]
        words += [] if self.root == "runs" else ["--root", self.root]
        words += [] if self.run is None else ["--run", self.run]
        return shlex.join([*words, *(word for name in self.plugins for word in ("--plugin", name))])


def print_seeds(result: SeedsResult) -> None:
    """Print the score of each seed, and their mean with its interval."""
    table = Table("seed", "status", "score", "progress", "run", box=None, pad_edge=False)
    for run in result.runs.values():
        score = "" if run.score is None else f"{run.score:.6g}"
        cells = [str(run.seed), run.status, score, progress(run.counters), run.run_dir]
        table.add_row(*[Text(clean(cell)) for cell in cells])
    print_table(table)
    if result.score is not None:
        say(f"mean {result.metric} {interval(result.score)}")


def _failures(result: SeedsResult) -> str:
    """Return which seeds failed, and why, in one sentence."""
    failed, num = result.failed, len(result.runs)
    reasons = {run.reason for run in failed}
    if len(failed) == num and len(reasons) == 1:
        return f"all {num} seeds failed: {failed[0].reason}" if num > 1 else str(failed[0].reason)
    details = "; ".join(f"seed {run.seed}: {run.reason}" for run in failed)
    return f"{len(failed)} of {num} seeds failed: {details}"
