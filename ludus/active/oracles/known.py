"""Labels that the data has already: a simulation of active learning."""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from ludus.active.examples import PoolExamples
from ludus.active.oracle import Put
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core import Run


@register("oracle", "known")
class Known:
    """Looks labels up in the data, to try strategies out."""

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["known"]
        """The targets that the data has, looked up when they are asked for."""

    def __init__(self, config: Config) -> None:
        pass

    def answer(self, rows: Tensor, examples: PoolExamples, put: Put, *, run: Run) -> None:
        """Put the targets of all rows."""
        put(rows.tolist(), examples.targets(rows).tolist())
