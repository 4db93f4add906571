"""A climb whose score is a fading sum of the places where it stood, logged every few steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ludus.config.registry import register_trainer
from ludus.core import Run, Stateful
from tests.sweep.hill import HillConfig, HillTrainer


class SummingConfig(HillConfig):
    """A hill with a rarer score."""

    score_every: int
    """The score is logged at every so many steps."""


class Total:
    """The sum so far."""

    def __init__(self) -> None:
        self.value = torch.zeros((), dtype=torch.float64)

    def state_dict(self) -> dict[str, Any]:
        return {"value": self.value}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.value = state["value"].clone()


@register_trainer("summing-hill")
class SummingTrainer(HillTrainer):
    """Climbs; the sum is halved at each step, so that it tells the values in their order."""

    Config = SummingConfig

    def prepare(self, *, max_steps: int | None) -> None:
        super().prepare(max_steps=max_steps)
        self.total = Total()

    def parts(self) -> Mapping[str, Stateful]:
        return {**super().parts(), "total": self.total}

    def climb(self, run: Run) -> Mapping[str, Any]:
        self.total.value = 0.5 * self.total.value + self.config.x
        if (run.counters["opt_steps"] + 1) % self.config.score_every == 0:
            run.log.log("hill/score", float(self.total.value))
        run.log.log("hill/x", self.config.x)
        run.log.write(run)
        return {}
