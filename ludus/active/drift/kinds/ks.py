"""Drift detection by Kolmogorov-Smirnov tests of the features."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.active.drift.by_reference import Alpha, ByReference
from ludus.active.drift.statistics import Compared, ks_test
from ludus.config.base import StrictConfig
from ludus.config.registry import register


@register("state_estimation", "ks")
class Ks(ByReference):
    """The largest KS statistic over the features, between a window and the first one."""

    kind = "ks"

    class Config(StrictConfig):
        """The significance level of the test."""

        kind: Literal["ks"]
        """A Kolmogorov-Smirnov test of each feature, corrected for their number (Bonferroni); it needs no
        true classes."""
        alpha: Alpha
        """Significance level: drift is detected if the corrected p-value is below this."""

    def __init__(self, config: Config) -> None:
        super().__init__(config.alpha)

    def compared(self, reference_ND: Tensor, now: Tensor, generator: torch.Generator) -> Compared:
        """Return the largest statistic and its p-value."""
        return ks_test(reference_ND, now)
