"""1,797 handwritten digits, 8 x 8 pixels each, in ten classes."""

from __future__ import annotations

from typing import Literal

import torch

from ludus.config.registry import register
from ludus.data.batches.splits import Splits
from ludus.data.sources._tables import TableConfig, load_table


@register("dataset", "digits")
class Digits:
    """1,797 handwritten digits, 8 x 8 pixels each, in ten classes."""

    class Config(TableConfig):
        """The split and scaling of the examples."""

        kind: Literal["digits"]
        """1,797 handwritten digits, 8 x 8 pixels each, in ten classes."""

    def __init__(self, config: Config) -> None:
        self._config = config

    def load(self, generator: torch.Generator) -> Splits:
        """Return the examples, split by the generator."""
        return load_table("digits", self._config, generator, task="classification")
