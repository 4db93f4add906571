"""The length of an RL run, and its change to a given number of optimisation steps."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.core.errors import ConfigError
from ludus.rl.config import EpochsConfig
from ludus.session.begun import changes_by_fit


def count_epochs(epochs: EpochsConfig, env_steps: int, epochs_for: Callable[[int], int]) -> int:
    """Return the number of epochs of a run, with this many env steps each.

    `epochs_for` returns the number of epochs for a number of optimisation steps.
    """
    whole = -(-epochs.max_env_steps // env_steps)
    return whole if epochs.max_opt_steps is None else min(whole, epochs_for(epochs.max_opt_steps))


def with_length(config: Any, max_steps: int) -> tuple[Any, list[str]]:
    """Return the config of a run of this many optimisation steps, and a sentence for each key that
    had to change besides its length.

    An interval that the run never reaches becomes 0; keys that depend on evaluations become null
    if there are none.
    """
    if max_steps < 1:
        raise ConfigError(f"fit was given max_steps={max_steps}; a run has one step at least")
    section, changes = getattr(config, "counted_in", "epochs"), dict[str, Any]()
    if section == "epochs":
        # With early stopping by KL divergence, a rollout has at least one update.
        is_cut = getattr(config, "target_kl", None) is not None
        rollouts = max_steps if is_cut else config.epochs_for(max_steps)
        # Twice as many: a run that is extended repeatedly loses part of an epoch each time.
        needed = 2 * rollouts * config.steps_per_epoch * config.num_envs
        if needed > config.epochs.max_env_steps:
            changes["epochs.max_env_steps"] = needed
    length = {f"{section}.max_opt_steps": max_steps}
    fitted = {path.split(".")[1]: value for path, value in {**length, **changes}.items()}
    part = getattr(config, section).model_copy(update=fitted)
    changes |= config.model_copy(update={section: part}).unreached()
    notes = changes_by_fit(config, changes, max_steps)
    return config.replace(**changes, **length), notes
