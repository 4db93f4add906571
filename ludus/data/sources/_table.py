"""The data sets of scikit-learn: its built-in tables, and one that its make_classification generates."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch.utils.data import Dataset

from ludus.config.base import Count, Fraction, Positive, PositiveFloat, StrictConfig
from ludus.config.optional import optional
from ludus.config.registry import register
from ludus.data.batches.splits import Splits
from ludus.data.sources._splitting import TableConfig, other_rows, split_table


class _BuiltIn:
    """A table that `sklearn.datasets.load_<kind>` returns."""

    kind: ClassVar[str]
    task: ClassVar[Literal["classification", "regression"]] = "classification"

    def __init__(self, config: TableConfig) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the examples, split by the generator."""
        table: Any = getattr(_scikit_learn(self.kind), f"load_{self.kind}")()
        return split_table(
            self.kind, table.data, table.target, self._config, generator,
            task=self.task, columns=[str(one) for one in getattr(table, "feature_names", ())],
        )  # fmt: skip


def _scikit_learn(kind: str) -> Any:
    return optional("sklearn.datasets", key=f"data.kind {kind}", extra="supervised")


@register("dataset", "breast_cancer")
class BreastCancer(_BuiltIn):
    """569 tumours described by 30 measurements, benign or malignant."""

    class Config(TableConfig):
        """The split and scaling of the examples."""

        kind: Literal["breast_cancer"]
        """569 tumours described by 30 measurements, benign or malignant."""


@register("dataset", "diabetes")
class Diabetes(_BuiltIn):
    """442 patients described by 10 measurements; the target is the progress of their illness."""

    task = "regression"

    class Config(TableConfig):
        """The split and scaling of the examples."""

        kind: Literal["diabetes"]
        """442 patients described by 10 measurements; the target is the progress of their illness."""


@register("dataset", "digits")
class Digits(_BuiltIn):
    """1,797 handwritten digits, 8 x 8 pixels each, in ten classes."""

    class Config(TableConfig):
        """The split and scaling of the examples."""

        kind: Literal["digits"]
        """1,797 handwritten digits, 8 x 8 pixels each, in ten classes."""


@register("dataset", "wine")
class Wine(_BuiltIn):
    """178 wines described by 13 measurements, from three growers."""

    class Config(TableConfig):
        """The split and scaling of the examples."""

        kind: Literal["wine"]
        """178 wines described by 13 measurements, from three growers."""


@register("dataset", "synthetic")
class Synthetic:
    """Clusters of points on the corners of a hypercube, some per class, and uninformative columns."""

    class Config(TableConfig):
        """The parameters of the table, and the split and scaling of the examples."""

        kind: Literal["synthetic"]
        """Clusters of points on the corners of a hypercube, some per class (make_classification)."""
        examples: Positive
        """The number of examples."""
        columns: Positive
        """The number of features; those neither informative nor redundant are noise."""
        informative: Positive
        """The number of features that the classes depend on."""
        redundant: Count
        """The number of features that are random linear combinations of informative ones."""
        class_shares: Annotated[list[PositiveFloat], Field(min_length=2)]
        """The proportion of each class, one number per class, before labels are flipped; on any scale."""
        clusters_per_class: Positive
        """The number of clusters of each class."""
        separation: PositiveFloat
        """The distance between clusters: half the side of the hypercube; less is harder."""
        flipped_labels: Fraction
        """The fraction of examples whose label is replaced by a random one."""
        table_seed: Annotated[int, Field(ge=0, lt=2**32)]
        """The seed of the table: the run's seed decides its split, and this its content."""

        def problems(self) -> Iterator[str]:
            """Yield the problems that only a combination of keys shows."""
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
        inputs, targets = self._arrays()
        return split_table(
            "synthetic", inputs, targets, self._config, generator, task="classification", columns=()
        )

    def others(self, section: StrictConfig, generator: torch.Generator) -> Dataset[Any] | None:
        """Return all examples of another table, scaled as those of this one."""
        if not isinstance(section, Synthetic.Config) or section.columns != self._config.columns:
            return None
        own, others = self._arrays(), Synthetic(section)._arrays()
        inputs, targets = (np.concatenate(pair) for pair in zip(own, others, strict=True))
        return other_rows(inputs, targets, self._config, generator, count=len(own[0]))

    def _arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the inputs and the classes."""
        config, datasets = self._config, _scikit_learn("synthetic")
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
        return inputs, targets
