"""569 tumours described by 30 measurements, benign or malignant."""

from __future__ import annotations

from typing import Literal

import torch

from ludus.config.registry import register
from ludus.data.batches.splits import Splits
from ludus.data.sources._tables import TableConfig, load_table


@register("dataset", "breast_cancer")
class BreastCancer:
    """569 tumours described by 30 measurements, benign or malignant."""

    class Config(TableConfig):
        """The split and scaling of the examples."""

        kind: Literal["breast_cancer"]
        """569 tumours described by 30 measurements, benign or malignant."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the examples, split by the generator."""
        return load_table("breast_cancer", self._config, generator, task="classification")
