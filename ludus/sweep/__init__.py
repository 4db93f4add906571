"""Sweeps: search for the best values of some keys of a config. Names are imported when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ludus.core.lazy import lazy_names

if TYPE_CHECKING:
    from ludus.sweep.config import SearchConfig as SearchConfig, SweepConfig as SweepConfig
    from ludus.sweep.curve import MetricCurve as MetricCurve, Point as Point
    from ludus.sweep.engine import (
        RunEnd as RunEnd,
        RunListener as RunListener,
        SweepEngine as SweepEngine,
        Task as Task,
    )
    from ludus.sweep.population.config import PopulationConfig as PopulationConfig
    from ludus.sweep.program import SearchProgram as SearchProgram
    from ludus.sweep.pruner import Past as Past, Pruner as Pruner
    from ludus.sweep.sampler import Sampler as Sampler
    from ludus.sweep.seed_pruner import SeedPruner as SeedPruner
    from ludus.sweep.space import Space as Space
    from ludus.sweep.sweeper import Sweeper as Sweeper
    from ludus.sweep.trials import (
        Leg as Leg,
        SweepResult as SweepResult,
        SweepTrial as SweepTrial,
    )
    from ludus.sweep.winner import WinnerResult as WinnerResult
else:
    __all__, __getattr__, __dir__ = lazy_names(__name__, __file__)
