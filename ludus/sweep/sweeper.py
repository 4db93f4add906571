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
from ludus.config.sections import kind_of, validate
from ludus.core.errors import ConfigError, LudusError
from ludus.store import places
from ludus.store.local import LocalStorage
from ludus.store.strict_json import one_line
from ludus.sweep.base import Base
from ludus.sweep.config import SweepConfig, given_sweep
from ludus.sweep.directory import begin_or_compare, refuse_foreign
from ludus.sweep.display import SweepDisplay, ranked
from ludus.sweep.engine import MakeTrainer, SweepEngine
from ludus.sweep.libraries import load_optuna
from ludus.sweep.pausing import pausing
from ludus.sweep.record import SweepRecord
from ludus.sweep.search import Search, sampler_of
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
        self, config: SweepConfig | Mapping[str, Any] | str | Path, overrides: Sequence[str] = ()
    ) -> None:
        """`overrides` change keys of a file: `budget.max_trials=50`."""
        self.config = given_sweep(config, overrides)
        self._source = [str(config), *overrides] if isinstance(config, str | Path) else None

    def sweep(
        self,
        count: int | None = None,
        *,
        root: str | Path = "sweeps",
        make_trainer_fn: MakeTrainer | None = None,
        show_on: Stream = "stdout",
    ) -> SweepResult:
        """Search until the budget is used up, and return the trials; what was begun in this root goes on.

        `count` is the number of trials in all, in place of the config's. `make_trainer_fn` makes the trainer
        of each run from its config; it needs the engine inline.
        """
        config = self._with_count(count)
        base, storage = Base(config), self._storage(root)
        sampler_of(config, base)
        engine = self._engine(make_trainer_fn)
        with self._taken(storage, config, base) as record:
            display = self._display(show_on)
            search = Search(config, base, storage, record, engine, display)
            display.open(search.trials, config.budget.max_trials)
            is_over = False
            try:
                with pausing(search.ask_to_pause):
                    is_over = search.run()
            finally:
                display.close()
                result = self._result(config, base, storage, search, is_over=is_over)
        if not is_over:
            display.say(f"interrupted; to go on: {self.way_to_go_on(root)}")
        return result

    def train_best(
        self, seeds: int | Sequence[int], *, root: str | Path = "sweeps", show_on: Stream = "stdout"
    ) -> WinnerResult:
        """Train the best config with other seeds: these, or so many that no trial has had."""
        base, storage = Base(self.config), self._storage(root)
        if not storage.exists("sweep.yaml"):
            raise LudusError(
                f"{storage.place} holds no sweep yet; `{self.way_to_go_on(root)}` begins it"
            )
        with self._taken(storage, self.config, base) as record:
            best = best_trial(list(record.trials().values()), self.config.metric.mode)
            if best is None:
                raise LudusError(
                    f"no trial of {storage.place} is complete, so there is no best one yet"
                )
            display = self._display(show_on)
            winner = Winner(self.config, base, storage, best, self._engine(None), display)
            with pausing(winner.ask_to_pause):
                return winner.train(_fresh(seeds, self.config.seeds))

    def export_optuna(self, path: str | Path, *, root: str | Path = "sweeps") -> Path:
        """Write the trials to a SQLite file for Optuna's dashboard, and return its path."""
        base, storage = Base(self.config), self._storage(root)
        from ludus.sweep.study import Study

        study = Study(
            sampler_of(self.config, base), seed=self.config.seed, mode=self.config.metric.mode
        )
        study.export(Path(path), self.config.name, list(SweepRecord(storage).trials().values()))
        return Path(path)

    def plan(self) -> str:
        """Return what a sweep would do, as text."""
        config, base = self.config, Base(self.config)
        sampler = sampler_of(config, base)
        budget = {k: v for k, v in config.budget.model_dump().items() if v is not None}
        lines = [f"sweep {config.name} until {', '.join(f'{k} {v:g}' for k, v in budget.items())}"]
        unit = f"batch of {config.batch_size} trials" if config.deterministic else "trial"
        lines.append(f"  {unit}: chosen by {sampler.config.kind}, over")
        lines += [f"    {path}: {_words(varied)}" for path, varied in base.space.variables.items()]
        lines.append(f"    run x {len(config.seeds)} (seeds {', '.join(map(str, config.seeds))})")
        lines.append(
            f"      train a {base.config.kind}; pruned by {kind_of(config.pruner)} and, between seeds, by"
            f" {kind_of(config.seed_pruner)}"
        )
        name, mode = config.metric.name, config.metric.mode
        lines.append(f"    score: the mean of the {config.metric.take} {name}, {mode} is better")
        return "\n".join(lines)

    def way_to_go_on(self, root: str | Path = "sweeps") -> str:
        """Return the command, or the call, that goes on with the sweep."""
        if self._source is None:
            return f"Sweeper(config).sweep(root={str(root)!r}), with the same config"
        where = [] if str(root) == "sweeps" else ["--root", str(root)]
        plugins = [word for name in registry.loaded_plugins for word in ("--plugin", name)]
        return shlex.join(["ludus", "sweep", *self._source, *where, *plugins])

    def _with_count(self, count: int | None) -> SweepConfig:
        if count is None:
            return self.config
        data = self.config.model_dump()
        data["budget"] = {**data["budget"], "max_trials": count}
        return validate(SweepConfig, data, source=f"sweep(count={count})")

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
            self.config.name, metric.name, metric.mode, console, is_silent=show_on == "none"
        )

    @contextlib.contextmanager
    def _taken(
        self, storage: LocalStorage, config: SweepConfig, base: Base
    ) -> Iterator[SweepRecord]:
        """Hold the lock of the sweep, and yield its record."""
        optuna = load_optuna()
        refuse_foreign(storage)
        with storage.lock() as lock:
            storage.check_owned = lock.check
            begin_or_compare(storage, config, base)
            record = SweepRecord(storage)
            about = {"optuna": str(optuna.__version__)}
            begun = record.beginning
            if begun is None:
                record.begin(about)
            elif config.deterministic and begun != about:
                raise LudusError(
                    f"{storage.place} is deterministic and began with Optuna {begun.get('optuna')}, and"
                    f" this is {about['optuna']}, which may choose other points; install the first, or set"
                    " 'deterministic' to false in a sweep of another name"
                )
            try:
                yield record
            finally:
                storage.close()
                storage.check_owned = lambda: None

    def _result(
        self,
        config: SweepConfig,
        base: Base,
        storage: LocalStorage,
        search: Search,
        *,
        is_over: bool,
    ) -> SweepResult:
        """Return the outcome, and write it to the directory."""
        trials = list(search.trials.values())
        mode = config.metric.mode
        best = best_trial(trials, mode)
        best_config = None
        if best is not None:
            best_config = base.best_config(best.point)
            storage.write("best.yaml", best_config.to_yaml().encode())
        rows = [trial.row() for trial in ranked(trials, mode)]
        storage.write("trials.json", one_line(rows).encode() + b"\n")
        return SweepResult(
            "finished" if is_over else "interrupted", _why(trials, best), storage.place,
            config.metric.name, mode, trials, best, best_config,
        )  # fmt: skip


def _why(trials: Sequence[SweepTrial], best: SweepTrial | None) -> str | None:
    """Return why there is no best trial, if there is none."""
    failed = [trial for trial in trials if trial.state == "failed"]
    if best is not None or not failed:
        return None
    return f"{len(failed)} of {len(trials)} trials failed, the first because of: {failed[0].reason}"


def _fresh(seeds: int | Sequence[int], used: Sequence[int]) -> list[int]:
    """Return the seeds given, or so many after the largest that trials have had."""
    if not isinstance(seeds, int):
        return list(seeds)
    if seeds < 1:
        raise ConfigError(f"the best config was to be trained with {seeds} seeds; give 1 or more")
    first = max(used) + 1
    return list(range(first, first + seeds))


def _words(varied: Varied) -> str:
    """Return a variable in words."""
    data = varied.model_dump(exclude={"kind", "when"})
    told = ", ".join(f"{key} {value}" for key, value in data.items() if value is not None)
    when = "" if varied.when is None else f", when {varied.when}"
    return f"{kind_of(varied)} of {told}{when}"
