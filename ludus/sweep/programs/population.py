"""The program of a population's file: population-based training."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.config.changeable import changeable_key, changeable_keys
from ludus.config.registry import register
from ludus.core.errors import ConfigError
from ludus.store.local import LocalStorage
from ludus.sweep.base import Base
from ludus.sweep.display import SweepDisplay
from ludus.sweep.engine import SweepEngine
from ludus.sweep.population.config import PopulationConfig
from ludus.sweep.population.record import PopulationRecord, member_row
from ludus.sweep.population.search import PopulationSearch
from ludus.sweep.population.selection import num_replaced
from ludus.sweep.program import SearchProgram
from ludus.sweep.trials import Leg, SweepTrial


@register("program", "population")
class PopulationProgram(SearchProgram):
    """Population-based training."""

    Config = PopulationConfig
    config: PopulationConfig
    unit = "member"

    @property
    def num_trials(self) -> int | None:
        return self.config.population.size

    def check(self, base: Base) -> None:
        """Raise ConfigError for keys that cannot change within a run, and for generations as long as it."""
        wrong = []
        known = list(changeable_keys(base.config))
        for path in base.space.variables:
            if changeable_key(base.config, path) is None:
                wrong.append(
                    f"'space' has '{path}', which cannot change within a run; of a {base.config.kind} these"
                    f" can: {', '.join(known) or 'none'}. Search over others with a file of kind sweep"
                )
        section = self.config.population
        length = base.length_by(section.counter)
        if length is not None and section.exploit_every >= length:
            wrong.append(
                f"'population.exploit_every' is {section.exploit_every}, and a run has {length}"
                f" {section.counter}: no member would ever be compared; make it smaller"
            )
        if wrong:
            raise ConfigError(f"the population '{self.config.name}': " + "; ".join(wrong))

    def search(
        self, base: Base, storage: LocalStorage, engine: SweepEngine, display: SweepDisplay
    ) -> PopulationSearch:
        record = PopulationRecord(storage)
        return PopulationSearch(self.config, base, storage, record, engine, display)

    def trials(self, storage: LocalStorage) -> Sequence[SweepTrial]:
        record = PopulationRecord(storage)
        return [member_row(record, member) for member in sorted(record.members)]

    def schedule(self, storage: LocalStorage, trial: SweepTrial) -> Sequence[Leg]:
        section = self.config.population
        record = PopulationRecord(storage)
        return record.schedule(trial.number, section.counter, section.exploit_every)

    def plan_lines(self, base: Base) -> tuple[str, Sequence[str], Sequence[str]]:
        config, section, explore = self.config, self.config.population, self.config.explore
        count = num_replaced(section.size, section.quantile)
        above = [
            f"  generation: {section.exploit_every} {section.counter} and the next {config.metric.name}",
            f"    train x {section.size}: a {base.config.kind} each, seeds"
            f" {', '.join(map(str, config.seeds))} in turn, beginning with random values of",
        ]
        factors = " or ".join(f"{factor:g}" for factor in explore.perturb)
        below = [
            f"    exploit: the {count} worst copy the checkpoint of one of the {count} best, by the"
            f" {config.metric.take} {config.metric.name}, {config.metric.mode} is better",
            f"    explore: each value of a copy times {factors}, or, with probability"
            f" {explore.resample_probability:g}, a random one",
        ]
        return "every member has come to its end", above, below
