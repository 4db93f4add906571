"""The samplers that are Optuna's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from ludus.config.base import Count, StrictConfig
from ludus.config.registry import register
from ludus.sweep.libraries import check_library, load_optuna
from ludus.sweep.sampler import Sampler


@register("sampler", "random")
class RandomSearch(Sampler):
    """Random search: every point is drawn independently."""

    class Config(StrictConfig):
        """No options."""

        kind: Literal["random"]
        """Random search."""

    def make(self, seed: int, number: int) -> Any:
        return load_optuna().samplers.RandomSampler(seed=seed)


@register("sampler", "tpe")
class Tpe(Sampler):
    """Tree-structured Parzen estimator: draws where good trials are denser than the others."""

    class Config(StrictConfig):
        """Options of TPE."""

        kind: Literal["tpe"]
        """Tree-structured Parzen estimator."""
        startup_trials: Count
        """Number of trials by random search before it."""
        multivariate: bool
        """Whether keys are modelled together; else each by itself."""

    def make(self, seed: int, number: int) -> Any:
        return load_optuna().samplers.TPESampler(
            seed=seed,
            n_startup_trials=self.config.startup_trials,
            multivariate=self.config.multivariate,
        )


@register("sampler", "cmaes")
class Cmaes(Sampler):
    """CMA-ES: an evolution strategy over numbers; choices and conditional keys are drawn at random."""

    replays = True

    class Config(StrictConfig):
        """Options of CMA-ES."""

        kind: Literal["cmaes"]
        """Covariance matrix adaptation evolution strategy."""
        startup_trials: Count
        """Number of trials by random search before it."""

    def problems(self) -> Iterator[str]:
        """Yield a sentence if there is nothing for it to search."""
        varied = self.space.variables.values()
        if not any(one.when is None and getattr(one, "kind", "") != "choice" for one in varied):
            yield "'sampler.kind' is cmaes, and no key of the space is a number that always varies; use tpe"

    def make(self, seed: int, number: int) -> Any:
        check_library("cmaes", key="'sampler.kind: cmaes'")
        return load_optuna().samplers.CmaEsSampler(
            seed=seed,
            # Its first population has to know the space from a trial.
            n_startup_trials=max(1, self.config.startup_trials),
            warn_independent_sampling=False,
        )


@register("sampler", "gp")
class GaussianProcess(Sampler):
    """Bayesian optimisation: a Gaussian process and log expected improvement."""

    class Config(StrictConfig):
        """Options of the Gaussian process."""

        kind: Literal["gp"]
        """Gaussian process."""
        startup_trials: Count
        """Number of trials by random search before it."""

    def make(self, seed: int, number: int) -> Any:
        check_library("scipy", key="'sampler.kind: gp'")
        return load_optuna().samplers.GPSampler(
            seed=seed,
            n_startup_trials=max(1, self.config.startup_trials),
            warn_independent_sampling=False,
        )
