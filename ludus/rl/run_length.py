"""How long an RL run is, and how it is made a given number of optimisation steps long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.core.errors import ConfigError
from ludus.rl.config import EpochsConfig
from ludus.session.begun import changes_by_fit


def count_epochs(epochs: EpochsConfig, env_steps: int, epochs_for: Callable[[int], int]) -> int:
    """Return how many epochs of this many env steps a run has.

    `epochs_for` returns how many of them it takes to make a number of optimisation steps.
    """
    whole = -(-epochs.max_env_steps // env_steps)
    return whole if epochs.max_opt_steps is None else min(whole, epochs_for(epochs.max_opt_steps))


def with_length(config: Any, max_steps: int) -> tuple[Any, list[str]]:
    """Return the config of a run of this many optimisation steps, and a sentence for each key that
    had to change besides its length.

    An interval that such a run never comes to is 0 in it; what only an evaluation decides is null
    where there is none.
    """
    if max_steps < 1:
        raise ConfigError(f"fit was given max_steps={max_steps}; a run has one step at least")
    section, changes = getattr(config, "counted_in", "epochs"), dict[str, Any]()
    if section == "epochs":
        # Where a KL divergence may end the passes, a rollout makes one update at least.
        is_cut = getattr(config, "target_kl", None) is not None
        rollouts = max_steps if is_cut else config.epochs_for(max_steps)
        # Twice as many: a run that is made longer again and again loses part of an epoch each time.
        needed = 2 * rollouts * config.steps_per_epoch * config.num_envs
        if needed > config.epochs.max_env_steps:
            changes["epochs.max_env_steps"] = needed
    length = {f"{section}.max_opt_steps": max_steps}
    fitted = {path.split(".")[1]: value for path, value in {**length, **changes}.items()}
    part = getattr(config, section).model_copy(update=fitted)
    changes |= config.model_copy(update={section: part}).unreached()
    notes = changes_by_fit(config, changes, max_steps)
    return config.replace(**changes, **length), notes
