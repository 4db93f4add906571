"""What the RL family adds to the words of the library, and what its keys are called elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ludus.config.rooms import declare
from ludus.rl import migrations

# Names, elsewhere or in a run counted otherwise, that count env steps.
_OF_ENV_STEPS = ("max_env_steps", "total_timesteps", "num_timesteps", "timesteps")


def _in_updates(name: str, path: str, data: Mapping[str, Any], value: object) -> str:
    """Return how many optimisation steps a number of env steps is, for a run counted in steps."""
    if name not in _OF_ENV_STEPS or path != "steps.max_opts":
        return ""
    first, interval = data.get("learning_starts"), data["steps"].get("opt_interval")
    if not (isinstance(first, int) and isinstance(interval, int) and interval > 0):
        return ""
    told = f" It counts optimisation steps, one for {interval} env steps after the first {first}"
    if isinstance(value, int) and value >= first + interval:
        told += f": write steps.max_opts={(value - first) // interval}"
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
        "total_timesteps": ("max_env_steps", "max_opts"),
        "num_timesteps": ("max_env_steps", "max_opts"),
        "timesteps": ("max_env_steps", "max_opts"),
        "n_envs": ("num_envs",),
        "n_steps": ("rollout_steps", "n_step"),
        "n_epochs": ("passes",),
        "batch_size": ("minibatches",),
        "num_minibatches": ("minibatches",),
        "lr": ("optimizer.learning_rate",),
        "clip_range": ("clip.initial",),
        "clip_coef": ("clip.initial",),
        "clip_range_vf": ("value_clip",),
        "ent_coef": ("entropy_coef", "temperature.initial"),
        "vf_coef": ("value_coef",),
        "buffer_size": ("replay.capacity",),
        "tau": ("target.share",),
        "target_update_interval": ("target.every_opt_steps",),
        "train_freq": ("opt_interval",),
        "net_arch": ("network.widths",),
        "hidden_sizes": ("network.widths",),
    },
    hint=_in_updates,
)
