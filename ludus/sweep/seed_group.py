"""Train one config with several seeds: a group of ordinary runs, as many at once as wanted.

runs/
  <name>-seed0/   an ordinary run, whose run.json has "group": "<name>"
  <name>-seed1/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from ludus.config.base import TrainerConfig, given
from ludus.config.registry import find
from ludus.config.seed_list import read_seeds
from ludus.core.errors import ConfigError, RunError
from ludus.session.begun import as_begun
from ludus.session.resumption import lengths_to_change
from ludus.store import directory
from ludus.store.checkpoint_files import peek
from ludus.store.groups import GROUP, member_name
from ludus.store.note import read_note
from ludus.store.places import below
from ludus.store.storage import Storage
from ludus.sweep.curve import Point
from ludus.sweep.engine import MakeTrainer, RunEnd, SweepEngine, Task
from ludus.sweep.pausing import pausing
from ludus.sweep.seed_display import SeedDisplay
from ludus.sweep.seed_queue import SeedQueue
from ludus.sweep.seed_results import SeedResult, SeedsResult
from ludus.sweep.trials import WHOLE

Stream = Literal["stdout", "stderr", "none"]


def train_seeds(
    config: TrainerConfig | Mapping[str, Any] | str | Path,
    seeds: str | Iterable[int],
    *,
    jobs: int = 1,
    root: str | Path = "runs",
    name: str | None = None,
    make_trainer_fn: MakeTrainer | None = None,
    show_on: Stream = "stdout",
) -> SeedsResult:
    """Train a config with several seeds, and return how each run ended, with the mean of the scores.

    `seeds` are numbers, or a text such as "0-4". The runs are <name>-seed<k> below the root; those that have
    ended are not repeated, and those that were interrupted, or failed, go on. With `jobs` above 1 so many
    run at once, in processes of their own. `make_trainer_fn` makes the trainer of a run from its config.
    """
    found = given(config)
    if not isinstance(found, TrainerConfig):
        raise ConfigError(
            f"train_seeds takes a config, a dict or the path of a file, not a {type(config).__name__}"
        )
    if type(jobs) is not int or jobs < 1:
        raise ConfigError(f"{jobs!r} runs cannot train at once; give 'jobs' 1 or more")
    if isinstance(seeds, int):
        raise ConfigError(
            f"'seeds' is {seeds!r}; give [{seeds}] for that seed, or range({seeds}) for so many"
        )
    wanted = read_seeds(seeds, what="'seeds'")
    group = SeedGroup(found, wanted, root=str(root), name=name or found.name, num_jobs=jobs)
    return group.train(show_on=show_on, make_trainer=make_trainer_fn)


class SeedGroup:
    """The runs of a config with several seeds."""

    def __init__(
        self, config: TrainerConfig, seeds: list[int], *, root: str, name: str, num_jobs: int
    ) -> None:
        """Raise LudusError if a run cannot be begun, or gone on with, before any is."""
        self.name, self._root = name, root
        self._num_jobs = min(num_jobs, len(seeds))
        self._configs: dict[int, TrainerConfig] = {}
        self._runs: dict[int, SeedResult] = {}
        for seed in seeds:
            run_name = member_name(name, seed)
            storage = directory.run_storage(root, run_name)
            own = config.replace(name=run_name, seed=seed)
            self._runs[seed] = self._found(seed, storage, own)
            self._configs[seed] = self._with_threads(storage, own)

    def train(
        self, *, show_on: Stream = "stdout", make_trainer: MakeTrainer | None = None
    ) -> SeedsResult:
        """Train what has not ended yet, and return all."""
        todo = [seed for seed, run in self._runs.items() if run.status not in WHOLE]
        queue = SeedQueue(self._engine(make_trainer), self, self._root, todo)
        console = Console(stderr=show_on == "stderr", highlight=False)
        self._display = SeedDisplay(self.name, console, is_silent=show_on == "none")
        if todo:
            self._display.open(self._runs)
            try:
                with pausing(queue.ask_to_pause):
                    queue.run()
            finally:
                self._display.close()
        return SeedsResult(self.name, dict(self._runs))

    def _found(self, seed: int, storage: Storage, config: TrainerConfig) -> SeedResult:
        """Return how far an earlier process has come with a run; raise RunError if it is another one."""
        waiting = SeedResult(seed, storage.place, "waiting")
        directory.refuse_foreign_directory(storage, is_resume=True)
        if not storage.exists("run.json"):
            return waiting
        group = read_note(storage).get(GROUP)
        if group != self.name:
            what = "a run of the group " + group if group else "a run by itself"
            raise RunError(
                f"{storage.place} is {what}, and not of the group {self.name}; choose another name (--run)"
                " or another --root"
            )
        lengths = lengths_to_change(storage, as_begun(config, storage))
        ending = directory.last_ending(storage) or {}
        event = ending.get("event")
        if event == "stopped" or (event == "finished" and not lengths):
            return SeedResult(
                seed, storage.place, event, ending.get("reason"), ending.get("counters", {}),
                ending.get("best"),
            )  # fmt: skip
        return waiting

    def _with_threads(self, storage: Storage, config: TrainerConfig) -> TrainerConfig:
        """Return the config with a number of threads: several runs at once have one each.

        A run that has begun keeps the number that it began with, which can change the last bits.
        """
        if config.settings.threads is not None:
            return config
        threads = 1 if self._num_jobs > 1 else None
        if storage.exists("run.json"):
            machine = read_note(storage).get("machine")
            before = machine.get("threads") if isinstance(machine, dict) else None
            threads = before if type(before) is int and before > 0 else threads
        return config.replace(**{"settings.threads": threads})

    def _engine(self, make_trainer: MakeTrainer | None) -> SweepEngine:
        if self._num_jobs > 1 and self._root.startswith("memory://"):
            raise ConfigError(
                f"{self._root} is the memory of this process, which other processes do not see: omit 'jobs'"
            )
        options: dict[str, object] = {"kind": "inline"}
        if self._num_jobs > 1:
            options = {"kind": "local", "workers": self._num_jobs, "hang_seconds": None}
            options["memory_gb"] = None
        if self._num_jobs > 1 and make_trainer is not None:
            raise ConfigError(
                "make_trainer_fn stays in this process, where runs train one after the other: omit 'jobs', or"
                " register the trainer in a module and load it with ludus.load_plugin"
            )
        kind = find("sweep_engine", str(options["kind"]))
        made: SweepEngine = kind(kind.Config(**options), make_trainer=make_trainer)
        return made

    def task(self, seed: int) -> Task:
        """Return the run of a seed."""
        config = self._configs[seed]
        self._display.began(seed)
        return Task(
            0, seed, config.model_dump(mode="json"), self._root, config.name, None, False, self.name
        )

    def logged(self, task: Task, point: Point) -> None:
        """Show how far a run is."""
        self._display.logged(task.seed, point)

    def ended(self, task: Task, end: RunEnd) -> None:
        """Take the outcome of a run."""
        assert end.status != "pruned", "no search watches it"
        assert end.status != "paused", "no search watches it"
        place = below(self._root, task.name)
        ending: dict[str, Any] = {}
        if (storage := directory.run_storage(self._root, task.name)).exists("run.json"):
            ending = directory.last_ending(storage) or peek(storage)
        run = SeedResult(
            task.seed, place, end.status, end.reason, dict(end.counters) or ending.get("counters", {}),
            ending.get("best"),
        )  # fmt: skip
        self._runs[task.seed] = run
        self._display.ended(run)
