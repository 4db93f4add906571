"""178 wines described by 13 measurements, from three growers."""

from __future__ import annotations

from typing import Literal

import torch

from ludus.config.registry import register
from ludus.data.batches.splits import Splits
from ludus.data.sources._tables import TableConfig, load_table


@register("dataset", "wine")
class Wine:
    """178 wines described by 13 measurements, from three growers."""

    class Config(TableConfig):
        """The split and scaling of the examples."""

        kind: Literal["wine"]
        """178 wines described by 13 measurements, from three growers."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the examples, split by the generator."""
        return load_table("wine", self._config, generator, task="classification")
