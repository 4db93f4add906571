"""442 patients described by 10 measurements; the target is the progress of their illness."""

from __future__ import annotations

from typing import Literal

import torch

from ludus.data.sources._tables import TableConfig, load_table
from ludus.data.splits import Splits
from ludus.registry import register


@register("dataset", "diabetes")
class Diabetes:
    """442 patients described by 10 measurements; the target is the progress of their illness."""

    class Config(TableConfig):
        """How the examples are divided and scaled."""

        kind: Literal["diabetes"]
        """442 patients described by 10 measurements; the target is the progress of their illness."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the examples, split by the generator."""
        return load_table("diabetes", self._config, generator, task="regression")
