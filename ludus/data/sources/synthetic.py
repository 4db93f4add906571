"""A table drawn by scikit-learn's make_classification, as hard as its keys make it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

import torch
from pydantic import Field

from ludus.config.base import Count, Fraction, Positive, PositiveFloat
from ludus.config.registry import register
from ludus.data.batches.splits import Splits
from ludus.data.sources._tables import TableConfig, built_in, split_table


@register("dataset", "synthetic")
class Synthetic:
    """Clusters of points on the corners of a hypercube, some to each class, and columns that tell nothing."""

    class Config(TableConfig):
        """What is drawn, and how the examples are divided and scaled."""

        kind: Literal["synthetic"]
        """Clusters of points on the corners of a hypercube, some to each class (make_classification)."""
        examples: Positive
        """How many examples are drawn."""
        columns: Positive
        """How many numbers describe one; those neither informative nor redundant are noise."""
        informative: Positive
        """How many columns the classes depend on."""
        redundant: Count
        """How many columns are sums of informative ones, with random weights."""
        class_shares: Annotated[list[PositiveFloat], Field(min_length=2)]
        """The share of each class, one number a class, before labels are flipped; any scale will do."""
        clusters_per_class: Positive
        """How many clusters each class has."""
        separation: PositiveFloat
        """How far apart the clusters lie: half the length of the hypercube's side; less is harder."""
        flipped_labels: Fraction
        """The share of examples whose label is drawn at random instead."""
        table_seed: Annotated[int, Field(ge=0, lt=2**32)]
        """Which table is drawn: the run's seed decides how it is divided, and this what is in it."""

        def problems(self) -> Iterator[str]:
            """Yield what only shows when keys are read together."""
            if self.informative + self.redundant > self.columns:
                yield (
                    f"'columns' is {self.columns}, fewer than {self.informative} informative and"
                    f" {self.redundant} redundant ones; raise it to {self.informative + self.redundant}"
                )
            clusters = len(self.class_shares) * self.clusters_per_class
            needed = (clusters - 1).bit_length()
            if needed > self.informative:
                yield (
                    f"'informative' is {self.informative}, and {clusters} clusters need a corner each;"
                    f" raise it to {needed}"
                )

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the examples, split by the generator."""
        config, datasets = self._config, built_in("synthetic")
        total = sum(config.class_shares)
        inputs, targets = datasets.make_classification(
            n_samples=config.examples,
            n_features=config.columns,
            n_informative=config.informative,
            n_redundant=config.redundant,
            n_repeated=0,
            n_classes=len(config.class_shares),
            n_clusters_per_class=config.clusters_per_class,
            weights=[share / total for share in config.class_shares],
            flip_y=config.flipped_labels,
            class_sep=config.separation,
            shuffle=True,
            random_state=config.table_seed,
        )
        return split_table(
            "synthetic", inputs, targets, config, generator, task="classification", columns=()
        )
