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
    last = {"eval_freq": num_epochs - 1, "record_freq": num_epochs, "save_freq": num_epochs}
    return [key for key, most in last.items() if getattr(epochs, key) > most]


def epochs_never_reached(epochs: EpochsConfig, num_epochs: int) -> Iterator[str]:
    """Yield a sentence for each interval that is longer than the run."""
    for key in unreached_epochs(epochs, num_epochs):
        limit = "the number of epochs"
        if key == "eval_freq":
            limit = "the first epoch is never evaluated and the number of the others"
        most = num_epochs - (key == "eval_freq")
        yield _never(f"epochs.{key}", getattr(epochs, key), limit, most)


def never_so_many(epochs: EpochsConfig, most: int) -> Iterator[str]:
    """Yield a sentence where an EpochsConfig ends before the optimisation steps it asks for."""
    if epochs.max_opts is not None and epochs.max_opts > most:
        yield (
            f"'epochs.max_opts' is {epochs.max_opts}, but epochs.max_env_steps"
            f" {epochs.max_env_steps} makes {most} optimisation steps: it would never be reached;"
            " raise the latter, or set null for no such limit"
        )


def unreached_steps(steps: StepsConfig, max_opts: int) -> list[str]:
    """Return the intervals of a StepsConfig that are longer than a run of this many updates."""
    keys = (
        "eval_interval", "record_interval", "save_interval", "record_agent_info_interval",
        "record_compute_cost_interval",
    )  # fmt: skip
    return [key for key in keys if getattr(steps, key) > max_opts]


def steps_never_reached(steps: StepsConfig, max_opts: int) -> Iterator[str]:
    """Yield a sentence for each interval that is longer than the run."""
    for key in unreached_steps(steps, max_opts):
        yield _never(f"steps.{key}", getattr(steps, key), "steps.max_opts", max_opts)


def _never(key: str, value: int, limit: str, most: int) -> str:
    return (
        f"'{key}' is {value}, but {limit} is {most}: it would never be reached; lower it, or set 0"
        " for never"
    )
