"""Make an RL run a given number of optimisation steps long, and say what had to change for it."""

from __future__ import annotations

from typing import Any

from ludus.core.errors import ConfigError
from ludus.rl.cadence import unreached_epochs, unreached_steps


def with_length(config: Any, max_steps: int) -> tuple[Any, list[str]]:
    """Return the config of a run of this many optimisation steps, and a sentence for each key that
    had to change besides its length.

    An interval that such a run never comes to is 0 in it; what only an evaluation decides is null
    where there is none.
    """
    if max_steps < 1:
        raise ConfigError(f"fit was given max_steps={max_steps}; a run has one step at least")
    changes: dict[str, Any] = {}
    if getattr(config, "schedule", "epochs") == "steps":
        length = {"steps.max_opts": max_steps}
        section, unreached = "steps", unreached_steps(config.steps, max_steps)
        is_evaluated = config.steps.eval_interval and "eval_interval" not in unreached
    else:
        length = {"epochs.max_opts": max_steps}
        num_epochs = config.epochs_for(max_steps)
        # Where a KL divergence may end the passes, a rollout makes one update at least.
        rollouts = num_epochs if getattr(config, "target_kl", None) is None else max_steps
        # Twice as many: a run that is made longer again and again loses part of an epoch each time.
        needed = 2 * rollouts * config.steps_per_epoch * config.num_envs
        if needed > config.epochs.max_env_steps:
            changes["epochs.max_env_steps"] = needed
        section, unreached = "epochs", unreached_epochs(config.epochs, num_epochs)
        is_evaluated = config.epochs.eval_freq and "eval_freq" not in unreached
    changes |= {f"{section}.{key}": 0 for key in unreached}
    if not is_evaluated:
        given = ("patience", "target_return")
        lost = [key for key in given if getattr(config.evaluation, key) is not None]
        changes |= {f"evaluation.{key}": None for key in lost}
        if "evaluation.patience" in changes:
            changes["evaluation.min_delta"] = 0.0
    notes = [_told(config, path, value, max_steps) for path, value in changes.items()]
    return config.replace(**changes, **length), notes


def _told(config: Any, path: str, value: Any, max_steps: int) -> str:
    before = config
    for part in path.split("."):
        before = getattr(before, part)
    shown = "null" if value is None else value
    return f"for fit(max_steps={max_steps}) '{path}' is {shown} rather than {before}"
