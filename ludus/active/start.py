"""Start an active run from the weights of another."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ludus.active.adapters.sklearn import Classifier
from ludus.core.errors import ConfigError
from ludus.nn.start import StartTarget
from ludus.supervised import start as supervised

if TYPE_CHECKING:
    from ludus.active.trainers.active import ActiveTrainer


def starting(trainer: ActiveTrainer) -> StartTarget:
    """Return the network, which can start as that of another run: its rounds begin from these weights.

    A method of the trainer. Raises ConfigError unless it trains one network.
    """
    candidates = trainer.candidates
    if isinstance(trainer.model, Classifier) or len(candidates.models) > 1:
        what = "several candidates" if len(candidates.models) > 1 else "a classifier"
        raise ConfigError(
            f"'start' is for one network, and this run has {what}; set it to null, and load the weights of"
            " each yourself"
        )

    def go_back_here() -> None:
        """Let rounds that start over begin with the weights that were taken."""
        candidates.begin(trainer.config)
        trainer.fitting.renew_only()
        trainer.renew()

    found = supervised.starting(trainer)
    return replace(found, then=[*found.then, go_back_here])
