"""What the RL family adds to the words of the library, and what its keys are called elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config.families import declare
from ludus.rl import migrations

# Names, elsewhere or in a run counted otherwise, that count env steps.
_OF_ENV_STEPS = ("max_env_steps", "total_timesteps", "num_timesteps", "timesteps")


# By key of a run counted the other way: the key that is read instead, and in which unit.
_IN_OPT_STEPS = "in optimisation steps, not in epochs"
_IN_EPOCHS = "in epochs, not in optimisation steps"
_UNITS = {
    ("record_freq", "steps.record_interval"): _IN_OPT_STEPS,
    ("eval_freq", "steps.eval_interval"): _IN_OPT_STEPS,
    ("save_freq", "steps.save_interval"): _IN_OPT_STEPS,
    ("record_interval", "epochs.record_freq"): _IN_EPOCHS,
    ("eval_interval", "epochs.eval_freq"): _IN_EPOCHS,
    ("save_interval", "epochs.save_freq"): _IN_EPOCHS,
    ("updates_per_env_step", "steps.opt_interval"): "in env steps for each optimisation step",
    ("opt_interval", "epochs.updates_per_env_step"): "in optimisation steps for each env step",
    ("steps_per_epoch", "steps.opt_interval"): "in env steps for each optimisation step",
    ("target_update_interval", "target.every_opt_steps"): "in optimisation steps, not in env steps",
}


def _of_another_unit(name: str, path: str, data: Mapping[str, Any], value: object) -> str:
    """Return what decides here what a name of another meaning does elsewhere, and in which unit."""
    if name in _OF_ENV_STEPS and path == "steps.max_opts":
        return _in_updates(data, value)
    if name == "batch_size":
        return _in_minibatches(data, value)
    unit = _UNITS.get((name, path))
    return f" Here '{path}' decides that, {unit}." if unit else ""


def _in_updates(data: Mapping[str, Any], value: object) -> str:
    """Return how many optimisation steps a number of env steps is, for a run counted in steps."""
    told = " Here 'steps.max_opts' decides that, in optimisation steps"
    first, interval = data.get("learning_starts"), data["steps"].get("opt_interval")
    if isinstance(first, int) and isinstance(interval, int) and interval > 0:
        told += f", one for {interval} env steps after the first {first}"
        if isinstance(value, int) and value >= first + interval:
            told += f": write steps.max_opts={(value - first) // interval}"
    return f"{told}."


def _in_minibatches(data: Mapping[str, Any], value: object) -> str:
    """Return how many minibatches have this size: the key is their number."""
    told = " Here 'minibatches' decides that: into how many pieces each pass divides a rollout"
    envs, steps = data.get("num_envs"), data.get("rollout_steps")
    if isinstance(envs, int) and isinstance(steps, int):
        size = envs * steps
        told += f" of {size} env steps"
        if isinstance(value, int) and value > 0 and size % value == 0:
            told += f"; write minibatches={size // value}"
    return f"{told}."


declare(
    "ludus.rl",
    categories={"network": "networks"},
    trainers="agents",
    needs={"gymnasium": "ludus[rl]"},
    migrations={1: migrations.to_2},
    renamed=migrations.renamed,
    lengths={
        "max_opts": "opt_steps",
        "max_env_steps": "env_steps",
        "max_iterations": "iteration",
    },
    earlier_names={"schedule": "counted_in", "learning_rate": "learning_rate_schedule"},
    other_names={
        # The keys of the section, steps or epochs, that a file does not follow, and of the one it does.
        "max_env_steps": ("steps.max_opts",),
        "max_opts": ("epochs.max_opts",),
        "record_freq": ("steps.record_interval",),
        "eval_freq": ("steps.eval_interval",),
        "save_freq": ("steps.save_interval",),
        "updates_per_env_step": ("steps.opt_interval",),
        "steps_per_epoch": ("steps.opt_interval",),
        "record_interval": ("epochs.record_freq",),
        "eval_interval": ("epochs.eval_freq",),
        "save_interval": ("epochs.save_freq",),
        "opt_interval": ("epochs.updates_per_env_step",),
        "max_steps": ("steps.max_opts", "epochs.max_opts"),
        "num_train_steps": ("steps.max_opts", "epochs.max_opts"),
        # What Stable-Baselines3, CleanRL and others call these.
        "total_timesteps": ("epochs.max_env_steps", "steps.max_opts"),
        "num_timesteps": ("epochs.max_env_steps", "steps.max_opts"),
        "timesteps": ("epochs.max_env_steps", "steps.max_opts"),
        "n_envs": ("num_envs",),
        "n_steps": ("rollout_steps", "n_step"),
        "n_epochs": ("passes",),
        "batch_size": ("minibatches",),
        "num_minibatches": ("minibatches",),
        "lr": ("optimizer.learning_rate",),
        "num_steps": ("rollout_steps",),
        "clip_range": ("clip.initial", "clip"),
        "clip_coef": ("clip.initial", "clip"),
        "lmbda": ("gae_lambda",),
        "clip_range_vf": ("value_clip",),
        "ent_coef": ("entropy_coef", "temperature.initial"),
        "vf_coef": ("value_coef",),
        "buffer_size": ("replay.capacity",),
        "tau": ("target.share",),
        "target_update_interval": ("target.every_opt_steps",),
        "train_freq": ("steps.opt_interval",),
        "net_arch": ("network.widths",),
        "hidden_sizes": ("network.widths",),
    },
    hint=_of_another_unit,
)
