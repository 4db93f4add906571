"""The file of a sweep: what it varies, what it compares by, how long it searches, and where its runs are."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny

from ludus.config.base import (
    Count,
    FileConfig,
    Positive,
    PositiveFloat,
    StrictConfig,
    Tell,
    change,
    current,
    read_data,
    typed_file,
)
from ludus.config.registry import find, kinds
from ludus.config.sections import registered
from ludus.config.seed_list import Seeds
from ludus.core.errors import ConfigError
from ludus.judge.directions import Direction, direction_of
from ludus.sweep.variables import Variable

SamplerSection = Annotated[SerializeAsAny[StrictConfig], registered("sampler")]
PrunerSection = Annotated[SerializeAsAny[StrictConfig], registered("pruner")]
SeedPrunerSection = Annotated[SerializeAsAny[StrictConfig], registered("seed_pruner")]
EngineSection = Annotated[SerializeAsAny[StrictConfig], registered("sweep_engine")]


class MetricConfig(StrictConfig):
    """The metric by which trials are compared."""

    name: str
    """A metric that the runs log, as it stands in metrics.jsonl."""
    direction: Direction | None
    """Whether lower (min) or higher (max) values are better; null: by the metric's name."""
    take: Literal["best", "last"]
    """The value of a run: the best that it logged, or the last."""
    confidence: Annotated[float, Field(gt=0.5, lt=1)]
    """Confidence level of the interval of a trial's mean over its seeds."""

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the direction."""
        try:
            direction_of(self.name, self.direction)
        except ConfigError as error:
            problem = str(error).partition(";")[0]
            yield f"'name': {problem}; set 'direction' to min or max"

    @property
    def mode(self) -> Direction:
        """The better direction."""
        return direction_of(self.name, self.direction)


class BudgetConfig(StrictConfig):
    """When a sweep begins no further trial; those that run are finished."""

    max_trials: Positive | None
    """Number of trials; null: no limit."""
    max_env_steps: Positive | None
    """Env steps of all runs together; null: no limit."""
    max_opt_steps: Positive | None
    """Optimisation steps of all runs together; null: no limit."""
    max_hours: PositiveFloat | None
    """Hours that the sweep has run, pauses left out; null: no limit."""

    def problems(self) -> Iterator[str]:
        """Yield a sentence if there is no limit at all."""
        if not any(value is not None for value in self.model_dump().values()):
            yield "every limit is null, so the sweep would never end; set one, such as 'max_trials'"


class SearchConfig(FileConfig):
    """Keys of every search for the best values of some keys of a config, whatever its kind."""

    kind: str
    """The kind of search: a sweep of trials, or a population."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,79}$")]
    """Name of the sweep; it is stored in sweeps/<name>."""
    seed: Count
    """Random seed of the search; those of the runs are 'seeds'."""
    base: str
    """The config that is varied: a file's path, or the name of one that `ludus new` prints."""
    fixed: dict[str, Any]
    """Keys of the base that have another value in every run."""
    space: dict[str, Variable]
    """Keys of the base that vary, each with its values."""
    metric: MetricConfig
    """The metric by which trials are compared."""
    seeds: Seeds
    """The seeds of the runs."""
    engine: EngineSection
    """Where runs are executed."""

    def problems(self) -> Iterator[str]:
        """Yield a sentence if nothing varies."""
        if not self.space:
            yield "'space' is empty, so there is nothing to search; name a key that varies"


class SweepConfig(SearchConfig):
    """A sweep: the search for the best values of some keys of a config, by trials."""

    kind: Literal["sweep"]
    """A sweep of trials."""
    seeds: Seeds
    """The seeds that every trial is run with: a list, or a range such as 0-4; its score is their mean."""
    sampler: SamplerSection
    """How points of the space are chosen."""
    pruner: PrunerSection
    """Decides which runs are ended early, by what they log."""
    seed_pruner: SeedPrunerSection
    """Decides which trials are ended before all their seeds have run."""
    budget: BudgetConfig
    """How long the search goes on."""
    deterministic: bool
    """Whether points are chosen in batches, each knowing all trials of the batches before and no other, so
    that the same file gives the same trials, however often it is interrupted."""
    batch_size: Positive | None
    """Number of trials in a batch; null unless deterministic."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        yield from super().problems()
        if self.deterministic and self.batch_size is None:
            yield "'batch_size' is null, and a deterministic sweep has batches; give the number of workers"
        if not self.deterministic and self.batch_size is not None:
            yield (
                f"'batch_size' is {self.batch_size}, and only a deterministic sweep has batches; set it to"
                " null"
            )
        if self.deterministic and self.budget.max_hours is not None:
            yield (
                f"'budget.max_hours' is {self.budget.max_hours:g}, and a deterministic sweep cannot end by"
                " the clock; set it to null, and limit the trials or the steps"
            )


CHANGEABLE = ("budget", "engine")
"""Sections of a search that may change while it goes on: they decide how long and where, not what."""


def given_sweep(
    config: object, overrides: Sequence[str] = (), *, tell: Tell = warnings.warn
) -> SearchConfig:
    """Return the typed config of a path, a mapping or a typed config; `overrides` are for a path."""
    if isinstance(config, str | Path):
        data = current(read_data(config), source=str(config))
        changed = change(data, overrides, source=str(config), tell=tell)
        return _typed(data, source=str(config), changed=changed)
    if overrides:
        raise ConfigError("overrides are for a file; change the keys of the config itself")
    if isinstance(config, SearchConfig):
        return config
    if isinstance(config, Mapping):
        return _typed(current(config, source="the config"), source="the config")
    raise ConfigError(
        f"Sweeper was given a {type(config).__name__}; give it the path of a sweep's file, a dict, or a"
        " SweepConfig (`ludus new sweep` prints a file)"
    )


def _typed(data: dict[str, Any], *, source: str, changed: Sequence[str] = ()) -> SearchConfig:
    known = [kind for kind in kinds("program") if find("program", kind).command == "sweep"]
    if data.get("kind") not in known:
        raise ConfigError(
            f"{source}: 'kind' is {data.get('kind')!r}, and a sweep's is one of: {', '.join(known)};"
            " `ludus new sweep` prints a file whose 'base' may name this one"
        )
    config = typed_file(data, source=source, changed=changed)
    assert isinstance(config, SearchConfig)
    return config
