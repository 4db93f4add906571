"""Drift detection by the maximum mean discrepancy of the features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from torch import Tensor

from ludus.active.drift.by_reference import Alpha, ByReference
from ludus.active.drift.statistics import Compared, mmd_test
from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register


@register("state_estimation", "mmd")
class Mmd(ByReference):
    """The MMD of features between a window and the first one, with a permutation test."""

    kind = "mmd"

    class Config(StrictConfig):
        """The significance level and the permutations of the test."""

        kind: Literal["mmd"]
        """The squared maximum mean discrepancy of features, with an RBF kernel as wide as their median
        distance; it needs no true classes."""
        alpha: Alpha
        """Significance level: drift is detected if the p-value is below this."""
        permutations: Positive
        """Number of random permutations for the p-value, which is at least 1 / (permutations + 1)."""

        def problems(self) -> Iterator[str]:
            """Yield the conflicts between keys."""
            least = 1 / (self.permutations + 1)
            if least >= self.alpha:
                yield (
                    f"'permutations' is {self.permutations}, so the p-value is {least:.3g} at least and never"
                    f" below 'alpha', {self.alpha:g}; raise one of them"
                )

    def __init__(self, config: Config) -> None:
        super().__init__(config.alpha)
        self._permutations = config.permutations

    def compared(self, reference_ND: Tensor, now: Tensor, generator: torch.Generator) -> Compared:
        """Return the MMD and its p-value."""
        return mmd_test(reference_ND, now, permutations=self._permutations, generator=generator)
