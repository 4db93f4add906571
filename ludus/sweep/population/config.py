"""The file of a population: its members, when they are compared, and how their values change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ludus.config.base import Positive, PositiveFloat, Share, StrictConfig
from ludus.config.seed_list import Seeds
from ludus.sweep.config import SearchConfig
from ludus.sweep.pruner import check_counter


class PopulationSection(StrictConfig):
    """The members, and when the worst copy the best."""

    size: Annotated[int, Field(ge=2, le=9999)]
    """Number of members."""
    counter: Annotated[str, AfterValidator(check_counter)]
    """The counter by which generations are counted."""
    exploit_every: Positive
    """Length of a generation: after so many, and the next value of the metric, members are compared."""
    quantile: Annotated[float, Field(gt=0, le=0.5)]
    """Truncation selection: the fraction of members that is replaced, and the best fraction, from which their
    sources are drawn; one member at least."""


class ExploreSection(StrictConfig):
    """How the values of a copy differ from those of its source."""

    perturb: Annotated[list[PositiveFloat], Field(min_length=1)]
    """Factors, of which one is drawn for each number; a choice moves on above 1, and back below."""
    resample_probability: Share
    """The probability that a value is drawn from the whole space instead."""

    def problems(self) -> Iterator[str]:
        """Yield a sentence if nothing would ever change."""
        if self.resample_probability == 0 and all(factor == 1 for factor in self.perturb):
            yield (
                "'perturb' has no factor but 1 and 'resample_probability' is 0, so no value would ever"
                " change; write perturb: [0.8, 1.25]"
            )


class PopulationConfig(SearchConfig):
    """Population-based training: runs side by side; the worst go on as changed copies of the best."""

    kind: Literal["population"]
    """Population-based training."""
    seeds: Seeds
    """The seeds that the members begin with, in turn, at most one for each; a copy has the seed of its
    source."""
    population: PopulationSection
    """The members, and when the worst copy the best."""
    explore: ExploreSection
    """How the values of a copy differ from those of its source."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        yield from super().problems()
        if len(self.seeds) > self.population.size:
            yield (
                f"'seeds' has {len(self.seeds)} seeds, and 'population.size' is {self.population.size}; give"
                " at most one for each member"
            )
