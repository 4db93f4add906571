"""How often something of an RL run is due, and how the printed plan says so."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ludus.rl.config import EpochsConfig
    from ludus.rl.off_policy import StepsConfig


def is_due(count: int, interval: int) -> bool:
    """Return whether a counter that goes up by one stands at a multiple; 0 means never."""
    return interval > 0 and count > 0 and count % interval == 0


def every(interval: int, unit: str, besides: str = "") -> str:
    """Return a few words for the printed plan; the unit is one of what is counted."""
    if not interval:
        return "never"
    return f"every {unit if interval == 1 else f'{interval} {unit}s'}{besides}"


def unreached_epochs(epochs: EpochsConfig, num_epochs: int) -> list[str]:
    """Return the intervals of an EpochsConfig that are longer than a run of this many epochs."""
    # The first epoch, number 0, is never evaluated, so the last one has the number less one.
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
        yield _never(f"epochs.{key}", getattr(epochs, key), limit, most)


def never_so_many(epochs: EpochsConfig, most: int) -> Iterator[str]:
    """Yield a sentence where an EpochsConfig ends before the optimisation steps it asks for."""
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
        yield _never(f"steps.{key}", getattr(steps, key), "steps.max_opt_steps", max_opt_steps)


def _never(key: str, value: int, limit: str, most: int) -> str:
    return (
        f"'{key}' is {value}, but {limit} is {most}: it would never be reached; lower it, or set 0"
        " for never"
    )
