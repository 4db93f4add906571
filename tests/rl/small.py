"""Small real runs of every agent, for tests."""

from __future__ import annotations

import functools
from typing import Any

import ludus

# Read once; `replace` makes another.
example = functools.cache(ludus.example)

QUIET: dict[str, Any] = {
    "settings.display": "none",
    "settings.loggers": [],
    "settings.threads": 1,
    "settings.device": "cpu",
    "evaluation.episodes": 2,
    "evaluation.envs": 2,
    "evaluation.target": None,
}
SHORT: dict[str, Any] = {
    "env.max_episode_steps": 30,
    "network.widths": [8],
    "batch_size": 8,
    "learning_starts": 20,
    "n_step": 1,
    "steps.update_every_env_steps": 4,
    "replay.capacity": 60,
    "steps.log_every_opt_steps": 4,
    "steps.evaluate_every_opt_steps": 7,
    "steps.keep_every_opt_steps": 11,
    "steps.max_opt_steps": 24,
}


def small(kind: str, **changes: Any) -> Any:
    """Return the config of a run that takes well under a second; sections are changed by path."""
    config = example(kind)
    if kind == "ppo":
        own = {
            "env.max_episode_steps": 30,
            "network.widths": [8],
            "rollout_steps": 8,
            "num_envs": 3,
            "num_epochs": 2,
            "minibatches": 3,
            "max_env_steps": 140,
            "log_every_epochs": 1,
            "evaluate_every_epochs": 2,
            "keep_every_epochs": 3,
        }
    else:
        own = {**SHORT, "num_envs": 3}
        if changes.get("counted_in") == "epochs":
            own = {key: value for key, value in own.items() if not key.startswith("steps.")}
            own["steps"] = None
    if changes.get("evaluation.asynchronous"):
        own["evaluation.timeout_seconds"] = 600.0
    return config.replace(**in_pieces({**QUIET, **own, **changes}, "num_envs"))


def in_pieces(changes: dict[str, Any], parallel: str, num_roles: int = 1) -> dict[str, Any]:
    """Return the changes with the size of minibatches in the place of their number, where that is given."""
    if num := changes.pop("minibatches", None):
        rows = changes[parallel] * changes["rollout_steps"] * num_roles
        changes.setdefault("minibatch_size", rows // num)
    return changes


# A run of a hundred boundaries that is killed again and again has checkpoints enough with this.
SELDOM = {"settings.checkpoint.every_stages": 13}

PRIORITISED = {
    "alpha": 0.6,
    "beta": 0.4,
    "eps": 1e-8,
    "normalise": "batch",
    "beta_schedule": {"kind": "linear", "warmup_steps": 0, "final": 1.0, "total_steps": None},
}
NORMALISE = {"observations": True, "rewards": True, "clip": 10.0}
BY_KL: dict[str, Any] = {"policy_loss": "kl", "clip": None, "kl": {"beta": 0.5, "target": 0.01}}
