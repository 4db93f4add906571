"""Wilcoxon: ends a trial that is probably worse than the best one, by the signed-rank test over the seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.sweep.libraries import check_library, load_optuna, quiet
from ludus.sweep.seed_pruner import SeedPruner


@register("seed_pruner", "wilcoxon")
class Wilcoxon(SeedPruner):
    """Asks Optuna's WilcoxonPruner, each seed being a step."""

    class Config(StrictConfig):
        """Options of the test."""

        kind: Literal["wilcoxon"]
        """The signed-rank test of Wilcoxon."""
        p_threshold: Annotated[float, Field(gt=0, lt=1)]
        """A trial is ended at a p value below this; larger ends more."""
        min_seeds: Annotated[int, Field(ge=2)]
        """Number of seeds that are run in any case."""

    def check(self) -> None:
        check_library("scipy", key="'seed_pruner.kind: wilcoxon'")

    def reason(self, own: Mapping[int, float], best: Mapping[int, float]) -> str | None:
        optuna, mean = load_optuna(), sum(best.values()) / len(best)
        running = optuna.trial.TrialState.RUNNING
        # A sample may be too small for the exact test, or all alike, of which scipy warns.
        with quiet():
            pruner = optuna.pruners.WilcoxonPruner(
                p_threshold=self.config.p_threshold, n_startup_steps=self.config.min_seeds
            )
            study = optuna.create_study(direction=f"{self._mode}imize", pruner=pruner)
            study.add_trial(optuna.trial.create_trial(value=mean, intermediate_values=dict(best)))
            trial = optuna.trial.create_trial(state=running, intermediate_values=dict(own))
            is_worse = pruner.prune(study, trial)
        if not is_worse:
            return None
        return f"wilcoxon: worse than the best trial on {len(own)} seeds, p < {self.config.p_threshold:g}"
