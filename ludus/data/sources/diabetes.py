"""442 patients described by 10 measurements; the target is the progress of their illness."""

from __future__ import annotations

from typing import Literal

import torch

from ludus.config.registry import register
from ludus.data.batches.splits import Splits
from ludus.data.sources._tables import TableConfig, load_table


@register("dataset", "diabetes")
class Diabetes:
    """442 patients described by 10 measurements; the target is the progress of their illness."""

    class Config(TableConfig):
        """The split and scaling of the examples."""

        kind: Literal["diabetes"]
        """442 patients described by 10 measurements; the target is the progress of their illness."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the examples, split by the generator."""
        return load_table("diabetes", self._config, generator, task="regression")
