"""The intervals of an RL run that are longer than the run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ludus.core.intervals import never_reached

if TYPE_CHECKING:
    from ludus.rl.config import EpochsConfig
    from ludus.rl.off_policy import StepsConfig


def unreached_epochs(epochs: EpochsConfig, num_epochs: int) -> list[str]:
    """Return the intervals of an EpochsConfig that are longer than a run of this many epochs."""
    # Epoch 0 is never evaluated, and the last epoch has the number num_epochs - 1.
    last = {
        "evaluate_every_epochs": num_epochs - 1,
        "log_every_epochs": num_epochs,
        "keep_every_epochs": num_epochs,
    }
    return [key for key, most in last.items() if getattr(epochs, key) > most]


def epochs_never_reached(epochs: EpochsConfig, num_epochs: int) -> Iterator[str]:
    """Yield a sentence for each interval that is longer than the run."""
    for key in unreached_epochs(epochs, num_epochs):
        limit = "the number of epochs"
        if key == "evaluate_every_epochs":
            limit = "the first epoch is never evaluated and the number of the others"
        most = num_epochs - (key == "evaluate_every_epochs")
        yield never_reached(f"epochs.{key}", getattr(epochs, key), limit, most)


def never_so_many(epochs: EpochsConfig, most: int) -> Iterator[str]:
    """Yield a sentence if an EpochsConfig ends before its max_opt_steps are reached."""
    if epochs.max_opt_steps is not None and epochs.max_opt_steps > most:
        yield (
            f"'epochs.max_opt_steps' is {epochs.max_opt_steps}, but epochs.max_env_steps"
            f" {epochs.max_env_steps} makes {most} optimisation steps: it would never be reached;"
            " raise the latter, or set null for no such limit"
        )


def unreached_steps(steps: StepsConfig, max_opt_steps: int) -> list[str]:
    """Return the intervals of a StepsConfig that are longer than a run of this many updates."""
    keys = (
        "evaluate_every_opt_steps", "log_every_opt_steps", "keep_every_opt_steps",
        "log_agent_info_every_opt_steps", "log_compute_cost_every_opt_steps",
    )  # fmt: skip
    return [key for key in keys if getattr(steps, key) > max_opt_steps]


def steps_never_reached(steps: StepsConfig, max_opt_steps: int) -> Iterator[str]:
    """Yield a sentence for each interval that is longer than the run."""
    for key in unreached_steps(steps, max_opt_steps):
        yield never_reached(
            f"steps.{key}", getattr(steps, key), "steps.max_opt_steps", max_opt_steps
        )
