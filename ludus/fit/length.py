"""The length of a supervised run set by `fit`, for a new run and for one that is extended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from ludus.core.errors import ConfigError
from ludus.fit.config import FitConfig
from ludus.session.begun import Begun, changes_by_fit

Config = TypeVar("Config", bound=FitConfig)


def lengthened(
    config: Config, max_steps: int | None, length: int | None, begun: Begun
) -> tuple[Config, list[str]]:
    """Return the config with the steps passed to `fit`, and a sentence for each key that had to change.

    `length` is the number of batches in an epoch, None if the data does not say. `begun` is the run so
    far, which decides the number of epochs: an epoch that ended early is over.
    """
    at_end = begun.counters_at_end()
    if max_steps is None:
        _refuse_ended(config, begun, at_end)
        return config, []
    num_left = max_steps - at_end.get("opt_steps", 0)
    epochs = 1 if not length else -(-num_left // -(-length // config.accumulate))
    needed = at_end.get("epoch", 0) + epochs if length or at_end else 0
    # A run may already have been extended beyond that, and then killed.
    needed = max(needed, begun.config.get("max_epochs", 0))
    changes = {"max_epochs": needed} if needed > config.max_epochs else {}
    notes = changes_by_fit(config, changes, max_steps)
    return config.replace(max_opt_steps=max_steps, **changes), notes


def _refuse_ended(config: FitConfig, begun: Begun, at_end: Mapping[str, int]) -> None:
    """Raise ConfigError if more steps are requested of a run whose epochs are over."""
    num_steps, num_epochs = at_end.get("opt_steps", 0), at_end.get("epoch", 0)
    is_over = bool(at_end) and config.max_opt_steps is not None and num_epochs >= config.max_epochs
    if is_over and config.max_opt_steps != begun.config.get("max_opt_steps"):
        raise ConfigError(
            f"'max_opt_steps' is {config.max_opt_steps}, but the run has ended, after {num_steps} steps in"
            f" {num_epochs} of {config.max_epochs} epochs, and an epoch that ended early is over; raise"
            f" 'max_epochs' too, to {num_epochs + 1} at least"
        )
