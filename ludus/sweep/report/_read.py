"""Shared by the sections: what the directory of a sweep records, and the places of values on an axis."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.config import strict_yaml
from ludus.config.base import current
from ludus.config.registry import find
from ludus.judge.directions import Direction
from ludus.show.report.charts import text
from ludus.show.report.files import ReportedRun
from ludus.show.report.scales import Scale, linear_scale, short_number
from ludus.store.local import LocalStorage
from ludus.store.places import open_storage
from ludus.store.storage import Storage
from ludus.sweep.base import varied_path
from ludus.sweep.config import SearchConfig, given_sweep
from ludus.sweep.population.config import PopulationConfig
from ludus.sweep.population.record import PopulationRecord
from ludus.sweep.program import SearchProgram
from ludus.sweep.trials import SweepTrial, best_trial
from ludus.sweep.variables import Choice, IntLogRange, LogRange, Varied

MARK = "sweep.yaml"
"""The file by which the directory of a sweep is known."""


@dataclass(frozen=True)
class ReportedSweep:
    """Everything that the sections show about one sweep."""

    name: str
    place: str
    storage: Storage
    config: SearchConfig
    trials: Sequence[SweepTrial]
    unit: str
    """The noun for a row of the table: trial, or member."""
    population: PopulationRecord | None
    """The record of a population; None for another search."""
    space: Mapping[str, Varied]
    """The keys that vary, by their whole paths."""

    @property
    def mode(self) -> Direction:
        return self.config.metric.mode

    @property
    def best(self) -> SweepTrial | None:
        return best_trial(self.trials, self.mode)


def read_sweep(run: ReportedRun) -> ReportedSweep | None:
    """Return the sweep in a directory; None if it holds none."""
    storage = open_storage(run.place)
    if not storage.exists(MARK):
        return None
    config = given_sweep(_read_yaml(storage, MARK))
    base = current(_read_yaml(storage, "base.yaml"), source=f"{storage.place}/base.yaml")
    space = {varied_path(base, config.space, key): one for key, one in config.space.items()}
    program: SearchProgram = find("program", config.kind)(config)
    is_population = isinstance(config, PopulationConfig)
    record = PopulationRecord(storage) if is_population else None
    trials = program.trials(LocalStorage(run.place))
    return ReportedSweep(run.name, run.place, storage, config, trials, program.unit, record, space)


def _read_yaml(storage: Storage, name: str) -> dict[str, Any]:
    source = f"{storage.place}/{name}"
    found = strict_yaml.parse(storage.read(name, limit=strict_yaml.MAX_BYTES), source=source)
    return dict(found) if isinstance(found, Mapping) else {}


def shown(value: object) -> str:
    """Return a value of a key in few characters."""
    if isinstance(value, Mapping):
        return str(value.get("kind", "section"))
    if isinstance(value, float):
        return f"{value:.4g}"
    return "null" if value is None else str(value)


@dataclass(frozen=True)
class Axis:
    """The places of the values of one key."""

    path: str
    scale: Scale
    labels: Sequence[str] | None
    """The values of a choice, in the order of their places; None for numbers."""

    def place(self, value: object) -> float | None:
        """Return the number that stands for a value; None if it has none here."""
        if self.labels is not None:
            key = _key(value)
            return float(self.labels.index(key)) if key in self.labels else None
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value)


def _key(value: object) -> str:
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else shown(value)


def axis_of(path: str, varied: Varied) -> Axis:
    """Return the axis of a key, as long as its range."""
    if isinstance(varied, Choice):
        labels = [_key(value) for value in varied.values]
        ticks = [float(place) for place in range(len(labels))]
        named = [text(_short(shown(value))) for value in varied.values]
        return Axis(path, Scale(-0.5, len(labels) - 0.5, ticks, named), labels)
    low, high = (float(value) for value in varied.extremes())
    if isinstance(varied, LogRange | IntLogRange):
        return Axis(path, log_scale(low, high), None)
    margin = 0.03 * (high - low)
    return Axis(path, linear_scale(low - margin, high + margin, num_ticks=5), None)


def log_scale(low: float, high: float) -> Scale:
    """Return a logarithmic scale, with ticks at powers of ten or, of a short range, at its ends."""
    bottom, top = math.log10(low), math.log10(high)
    margin = 0.03 * (top - bottom)
    powers = range(math.ceil(bottom - 1e-9), math.floor(top + 1e-9) + 1)
    every = max(1, math.ceil(len(powers) / 6))
    ticks = [10.0**power for power in powers][::every]
    if len(ticks) < 2:
        ticks = [low, math.sqrt(low * high), high]
    labels = [_tick(tick) for tick in ticks]
    return Scale(10 ** (bottom - margin), 10 ** (top + margin), ticks, labels, is_log=True)


def _tick(value: float) -> str:
    if 1e-3 <= value <= 1e4:
        return f"{float(f'{value:.3g}'):g}"
    return f"{value:.0e}".replace("e-0", "e-").replace("e+0", "e")


def _short(word: str) -> str:
    return word if len(word) <= 12 else f"{word[:11]}…"


def number_words(count: int, word: str) -> str:
    """Return a number with its noun."""
    return f"{short_number(count)} {word}{'s' * (count != 1)}"


def wide(drawing: str, *, at_least: float, at_most: float) -> str:
    """Return a drawing that is scrolled where the page is narrower than `at_least` pixels."""
    size = f"min-width:{at_least:.0f}px;max-width:{at_most:.0f}px"
    return f'<div style="overflow-x:auto"><div style="{size}">{drawing}</div></div>'
