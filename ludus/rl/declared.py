"""Registrations of the RL family, and the names of its keys in other libraries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config.families import declare
from ludus.rl import migrations

# Names in env steps, of other libraries or of runs counted in the other unit.
_OF_ENV_STEPS = ("max_env_steps", "total_timesteps", "num_timesteps", "timesteps")
# The keys of a run's length in optimisation steps, and in env steps where it is counted in those.
_OPT_STEPS = ("steps.max_opt_steps", "epochs.max_opt_steps", "max_opt_steps")
_ENV_STEPS = ("epochs.max_env_steps", "max_env_steps", "steps.max_opt_steps")


# For each key of a run counted in the other unit: the keys to use instead, and their unit.
_UNITS: dict[str, tuple[tuple[str, ...], str]] = {
    "updates_per_env_step": (
        ("steps.update_every_env_steps",), "in env steps for each optimisation step"),
    "update_every_env_steps": (
        ("epochs.updates_per_env_step",), "in optimisation steps for each env step"),
    "steps_per_epoch": (
        ("steps.update_every_env_steps",), "in env steps for each optimisation step"),
    "target_update_interval": (
        ("target.sync_every_opt_steps",), "in optimisation steps, not in env steps"),
}  # fmt: skip
for _verb in ("log", "evaluate", "keep"):
    _epochs, _opts = f"{_verb}_every_epochs", f"{_verb}_every_opt_steps"
    _UNITS[_epochs] = ((f"steps.{_opts}",), "in optimisation steps, not in epochs")
    _UNITS[_opts] = ((f"epochs.{_epochs}", _epochs), "in epochs, not in optimisation steps")


def _of_another_unit(name: str, path: str, data: Mapping[str, Any], value: object) -> str:
    """Return the key here that corresponds to another library's name, and its unit."""
    if name in _OF_ENV_STEPS and path == "steps.max_opt_steps":
        return _in_updates(data, value)
    if name in ("num_minibatches", "minibatches"):
        return _as_size(data, value)
    keys, unit = _UNITS.get(name, ((), ""))
    return f" Here '{path}' decides that, {unit}." if path in keys else ""


def _in_updates(data: Mapping[str, Any], value: object) -> str:
    """Return a number of env steps in optimisation steps, for a run counted in steps."""
    advice = " Here 'steps.max_opt_steps' decides that, in optimisation steps"
    first, interval = data.get("learning_starts"), data["steps"].get("update_every_env_steps")
    if isinstance(first, int) and isinstance(interval, int) and interval > 0:
        advice += f", one for {interval} env steps after the first {first}"
        if isinstance(value, int) and value >= first + interval:
            advice += f": write steps.max_opt_steps={(value - first) // interval}"
    return f"{advice}."


def _as_size(data: Mapping[str, Any], value: object) -> str:
    """Return the minibatch size for a number of minibatches: the key is the size."""
    advice = (
        " Here 'minibatch_size' decides that: how many steps of a rollout one update learns from"
    )
    envs, steps = data.get("num_envs"), data.get("rollout_steps")
    if isinstance(envs, int) and isinstance(steps, int):
        size = envs * steps
        advice += f", which has {size}"
        if isinstance(value, int) and value > 0 and size % value == 0:
            advice += f"; write minibatch_size={size // value}"
    return f"{advice}."


declare(
    "ludus.rl",
    categories={"network": "networks"},
    trainers="agents",
    needs={"gymnasium": "ludus[rl]"},
    migrations={1: migrations.to_2, 4: migrations.to_5, 5: migrations.to_6},
    renamed=migrations.renamed,
    lengths={
        "max_opt_steps": "opt_steps",
        "max_env_steps": "env_steps",
        "max_iterations": "iteration",
    },
    earlier_names={"schedule": "counted_in", "learning_rate": "learning_rate_schedule"},
    other_names={
        # The keys of the section, steps or epochs, that a config does not use, and of the one it does.
        "max_env_steps": ("steps.max_opt_steps",),
        "max_opt_steps": ("epochs.max_opt_steps",),
        **{name: keys for name, (keys, _) in _UNITS.items()},
        "max_steps": _OPT_STEPS,
        "num_train_steps": _OPT_STEPS,
        # The names in Stable-Baselines3, CleanRL and others.
        "total_timesteps": _ENV_STEPS,
        "num_timesteps": _ENV_STEPS,
        "timesteps": _ENV_STEPS,
        "n_envs": ("num_envs",),
        "n_steps": ("rollout_steps", "n_step"),
        "n_epochs": ("num_epochs",),
        "update_epochs": ("num_epochs",),
        "batch_size": ("minibatch_size",),
        "mini_batch_size": ("minibatch_size",),
        "num_minibatches": ("minibatch_size",),
        "minibatches": ("minibatch_size",),
        "lr": ("optimizer.learning_rate",),
        "num_steps": ("rollout_steps",),
        "clip_range": ("clip.initial", "clip"),
        "clip_coef": ("clip.initial", "clip"),
        "lmbda": ("gae_lambda",),
        "clip_range_vf": ("value_clip",),
        "ent_coef": ("entropy_coef", "temperature.initial"),
        "vf_coef": ("value_coef",),
        "buffer_size": ("replay.capacity",),
        "polyak": ("target.tau",),
        "train_freq": ("steps.update_every_env_steps",),
        "net_arch": ("network.widths",),
        "hidden_sizes": ("network.widths",),
    },
    former_names={
        **{f"epochs.{old}": f"epochs.{new}" for old, new in migrations.EPOCHS.items()},
        **{f"steps.{old}": f"steps.{new}" for old, new in migrations.STEPS.items()},
        **{f"target.{old}": f"target.{new}" for old, new in migrations.TARGET.items()},
        **{f"epochs.{key}": key for key in migrations.EPOCHS_OF_ROLLOUTS},
        "evaluation.target_return": "evaluation.target",
        "passes": "num_epochs",
    },
    hint=_of_another_unit,
)
