"""The program of a sweep's file: trials, each with its own values from beginning to end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ludus.config.registry import register
from ludus.config.sections import kind_of, validate
from ludus.core.errors import LudusError
from ludus.store.local import LocalStorage
from ludus.sweep.base import Base
from ludus.sweep.config import SweepConfig
from ludus.sweep.display import SweepDisplay
from ludus.sweep.engine import SweepEngine
from ludus.sweep.libraries import load_optuna
from ludus.sweep.program import SearchProgram
from ludus.sweep.record import SweepRecord
from ludus.sweep.search import Search, sampler_of
from ludus.sweep.study import Study, check_study
from ludus.sweep.trials import SweepTrial


@register("program", "sweep")
class SweepProgram(SearchProgram):
    """A sweep of trials."""

    Config = SweepConfig
    config: SweepConfig

    @property
    def num_trials(self) -> int | None:
        return self.config.budget.max_trials

    def with_count(self, count: int) -> SweepConfig:
        data = self.config.model_dump()
        data["budget"] = {**data["budget"], "max_trials": count}
        return validate(SweepConfig, data, source=f"sweep(count={count})")

    def check(self, base: Base) -> None:
        load_optuna()
        sampler_of(self.config, base)

    def begin(self, storage: LocalStorage) -> None:
        """Record the version of Optuna, on which the points of a deterministic sweep depend."""
        record = SweepRecord(storage)
        about = {"optuna": str(load_optuna().__version__)}
        begun = record.beginning
        if begun is None:
            record.begin(about)
        elif self.config.deterministic and begun != about:
            raise LudusError(
                f"{storage.place} is deterministic and began with Optuna {begun.get('optuna')}, and"
                f" this is {about['optuna']}, which may choose other points; install the first, or set"
                " 'deterministic' to false in a sweep of another name"
            )

    def search(
        self, base: Base, storage: LocalStorage, engine: SweepEngine, display: SweepDisplay
    ) -> Search:
        return Search(self.config, base, storage, SweepRecord(storage), engine, display)

    def trials(self, storage: LocalStorage) -> Sequence[SweepTrial]:
        return list(SweepRecord(storage).trials().values())

    def check_export(self, path: str) -> None:
        check_study(Path(path))

    def export_optuna(self, base: Base, storage: LocalStorage, path: str) -> None:
        config = self.config
        study = Study(sampler_of(config, base), seed=config.seed, mode=config.metric.mode)
        study.export(Path(path), config.name, self.trials(storage))

    def plan_lines(self, base: Base) -> tuple[str, Sequence[str], Sequence[str]]:
        config = self.config
        budget = {k: v for k, v in config.budget.model_dump().items() if v is not None}
        until = ", ".join(f"{k} {v:g}" for k, v in budget.items())
        unit = f"batch of {config.batch_size} trials" if config.deterministic else "trial"
        sampler = sampler_of(config, base)
        above = [f"  {unit}: chosen by {sampler.config.kind}, over"]
        below = [
            f"    run x {len(config.seeds)} (seeds {', '.join(map(str, config.seeds))})",
            f"      train a {base.config.kind}; pruned by {kind_of(config.pruner)} and, between seeds, by"
            f" {kind_of(config.seed_pruner)}",
            f"    score: the mean of the {config.metric.take} {config.metric.name},"
            f" {config.metric.mode} is better",
        ]
        return until, above, below
