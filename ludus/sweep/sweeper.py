"""Sweeper: searches for the best values of some keys of a config, and takes up where it was interrupted."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console

from ludus.config import registry
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.config.seed_list import read_seeds
from ludus.core.errors import ConfigError, LudusError
from ludus.store import places
from ludus.store.local import LocalStorage
from ludus.sweep.base import Base
from ludus.sweep.config import SearchConfig, given_sweep
from ludus.sweep.directory import begin_or_compare, refuse_foreign
from ludus.sweep.display import SweepDisplay
from ludus.sweep.engine import MakeTrainer, SweepEngine
from ludus.sweep.pausing import pausing
from ludus.sweep.program import SearchProgram
from ludus.sweep.result_files import ResultFiles
from ludus.sweep.trials import SweepResult, SweepTrial, best_trial
from ludus.sweep.variables import Varied
from ludus.sweep.winner import Winner, WinnerResult

Stream = Literal["stdout", "stderr", "none"]


class Sweeper:
    """Searches over a config: `Sweeper("sweep.yaml").sweep(count=20)`.

    It takes the path of a file, a dict, or a SweepConfig. The classes of trainer, model and logger follow
    from the config that is varied; `ludus new sweep` prints a complete file.
    """

    def __init__(
        self, config: SearchConfig | Mapping[str, Any] | str | Path, overrides: Sequence[str] = ()
    ) -> None:
        """`overrides` change keys of a file: `budget.max_trials=50`."""
        self.config = given_sweep(config, overrides)
        self._program: SearchProgram = find("program", self.config.kind)(self.config)
        self._source = [str(config), *overrides] if isinstance(config, str | Path) else None

    def sweep(
        self,
        count: int | None = None,
        *,
        root: str | Path = "sweeps",
        make_trainer_fn: MakeTrainer | None = None,
        show_on: Stream = "stdout",
    ) -> SweepResult:
        """Search to the end, and return the trials; what was begun in this root goes on.

        `count` is the number of trials in all, in place of the config's. `make_trainer_fn` makes the trainer
        of each run from its config; it needs the engine inline.
        """
        program = self._program
        if count is not None:
            program = type(program)(program.with_count(count))
        base, storage = Base(program.config), self._storage(root)
        program.check(base)
        engine = self._engine(make_trainer_fn)
        with self._taken(storage, program, base):
            display = self._display(show_on)
            search = program.search(base, storage, engine, display)
            files = ResultFiles(program, base, storage)
            search.after_trial = lambda: files.refresh(list(search.trials.values()))
            search.after_trial()
            display.open(search.trials, program.num_trials)
            is_over = False
            try:
                with pausing(search.ask_to_pause):
                    is_over = search.run()
            finally:
                display.close()
                trials = list(search.trials.values())
                result = self._result(files, trials, storage.place, is_over=is_over)
        if not is_over:
            display.say(f"interrupted; to go on: {self.way_to_go_on(root)}")
        return result

    def train_best(
        self, seeds: int | Sequence[int], *, root: str | Path = "sweeps", show_on: Stream = "stdout"
    ) -> WinnerResult:
        """Train the best config with other seeds: these, or so many that no trial has had."""
        fresh = _fresh(seeds, self.config.seeds)
        base, storage = Base(self.config), self._storage(root)
        if not storage.exists("sweep.yaml"):
            raise LudusError(
                f"{storage.place} holds no sweep yet; `{self.way_to_go_on(root)}` begins it"
            )
        with self._taken(storage, self._program, base):
            best = best_trial(self._program.trials(storage), self.config.metric.mode)
            if best is None:
                raise LudusError(
                    f"no trial of {storage.place} is complete, so there is no best one yet"
                )
            display = self._display(show_on)
            legs = self._program.schedule(storage, best)
            winner = Winner(
                self.config, base, storage, best, legs, fresh,
                self._engine(None), display, unit=self._program.unit,
            )  # fmt: skip
            with pausing(winner.ask_to_pause):
                return winner.train()

    def check_export(self, path: str | Path) -> None:
        """Raise LudusError unless `export_optuna` can write to this path."""
        self._program.check_export(str(path))

    def export_optuna(self, path: str | Path, *, root: str | Path = "sweeps") -> Path:
        """Write the trials to a SQLite file for Optuna's dashboard, and return its path."""
        self._program.export_optuna(Base(self.config), self._storage(root), str(path))
        return Path(path)

    def plan(self) -> str:
        """Return what a sweep would do, as text."""
        base = Base(self.config)
        self._program.check(base)
        until, above, below = self._program.plan_lines(base)
        space = [f"    {path}: {_words(varied)}" for path, varied in base.space.variables.items()]
        return "\n".join(
            [f"{self.config.kind} {self.config.name} until {until}", *above, *space, *below]
        )

    def way_to_go_on(self, root: str | Path = "sweeps") -> str:
        """Return the command, or the call, that goes on with the sweep."""
        if self._source is None:
            return f"Sweeper(config).sweep(root={str(root)!r}), with the same config"
        where = [] if str(root) == "sweeps" else ["--root", str(root)]
        plugins = [word for name in registry.loaded_plugins for word in ("--plugin", name)]
        return shlex.join(["ludus", "sweep", *self._source, *where, *plugins])

    def _storage(self, root: str | Path) -> LocalStorage:
        if places.is_url(root):
            raise LudusError(
                f"the root {root} is no directory, and a sweep is kept in one; give a directory"
            )
        return LocalStorage(places.below(root, self.config.name))

    def _engine(self, make_trainer: MakeTrainer | None) -> SweepEngine:
        section = self.config.engine
        made: SweepEngine = find("sweep_engine", kind_of(section))(
            section, make_trainer=make_trainer
        )
        return made

    def _display(self, show_on: Stream) -> SweepDisplay:
        console = Console(stderr=show_on == "stderr", highlight=False)
        metric = self.config.metric
        return SweepDisplay(
            self.config.name,
            metric.name,
            metric.mode,
            console,
            unit=self._program.unit,
            is_silent=show_on == "none",
        )

    @contextlib.contextmanager
    def _taken(self, storage: LocalStorage, program: SearchProgram, base: Base) -> Iterator[None]:
        """Hold the lock of the sweep."""
        refuse_foreign(storage)
        with storage.lock() as lock:
            storage.check_owned = lock.check
            begin_or_compare(storage, program.config, base)
            program.begin(storage)
            try:
                yield
            finally:
                storage.close()
                storage.check_owned = lambda: None

    def _result(
        self, files: ResultFiles, trials: Sequence[SweepTrial], place: str, *, is_over: bool
    ) -> SweepResult:
        """Write the files of the directory, and return the outcome."""
        best, best_config, schedule = files.write(trials)
        metric = self.config.metric
        return SweepResult(
            "finished" if is_over else "interrupted", _why(trials, best), place, metric.name,
            metric.mode, trials, best, best_config, schedule, self._program.unit,
        )  # fmt: skip


def _why(trials: Sequence[SweepTrial], best: SweepTrial | None) -> str | None:
    """Return why there is no best trial, if there is none."""
    failed = [trial for trial in trials if trial.state == "failed"]
    if best is not None or not failed:
        return None
    return f"{len(failed)} of {len(trials)} trials failed, the first because of: {failed[0].reason}"


def _fresh(seeds: int | Sequence[int], used: Sequence[int]) -> list[int]:
    """Return the seeds given, or so many after the largest that trials have had."""
    first = max(used) + 1
    if not isinstance(seeds, int):
        if had := [seed for seed in seeds if seed in used]:
            raise ConfigError(
                f"the trials had seed {had[0]}, by which the best was chosen; give others, such as {first}"
            )
        return list(seeds)
    if seeds < 1:
        raise ConfigError(f"the best config was to be trained with {seeds} seeds; give 1 or more")
    return read_seeds(f"{first}-{first + seeds - 1}", what="the best config")


def _words(varied: Varied) -> str:
    """Return a variable in words."""
    data = varied.model_dump(exclude={"kind", "when"})
    options = ", ".join(f"{key} {value}" for key, value in data.items() if value is not None)
    when = "" if varied.when is None else f", when {varied.when}"
    return f"{kind_of(varied)} of {options}{when}"
