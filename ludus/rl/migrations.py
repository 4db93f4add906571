"""Migrations of older agents' configs: renamed keys and changed meanings."""

from __future__ import annotations

import copy
from typing import Any

from ludus.config.migrations import has_keys, rename_keys, sections_of
from ludus.core.errors import ConfigError

_EVALUATION = ("episodes", "envs", "asynchronous", "patience", "min_delta", "target_return")
"""The keys that identify an evaluation section."""


def renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Rename keys to their current names: version 2 changed some while it was current."""
    names: dict[str, str] = {}
    if has_keys(data, "replay", "learning_starts") and data.get("schedule") in ("steps", "epochs"):
        names["schedule"] = "counted_in"
    is_agent = has_keys(data.get("evaluation"), *_EVALUATION)
    if is_agent and has_keys(data.get("learning_rate"), "kind", "warmup_steps"):
        names["learning_rate"] = "learning_rate_schedule"
    return {names.get(key, key): value for key, value in data.items()}


EPOCHS = {
    "max_opts": "max_opt_steps",
    "record_freq": "log_every_epochs",
    "eval_freq": "evaluate_every_epochs",
    "save_freq": "keep_every_epochs",
}
STEPS = {
    "max_opts": "max_opt_steps",
    "opt_interval": "update_every_env_steps",
    "record_interval": "log_every_opt_steps",
    "eval_interval": "evaluate_every_opt_steps",
    "save_interval": "keep_every_opt_steps",
    "record_agent_info_interval": "log_agent_info_every_opt_steps",
    "record_compute_cost_interval": "log_compute_cost_every_opt_steps",
}
"""The names before version 5 of the keys of runs counted in epochs, and in steps."""
TARGET = {"every_opt_steps": "sync_every_opt_steps", "share": "tau"}


def to_5(data: dict[str, Any]) -> dict[str, Any]:
    """Rename keys as in version 5, and give PPO's minibatches by size instead of number."""
    rename_keys(data.get("epochs"), EPOCHS, "max_env_steps", "eval_freq")
    rename_keys(data.get("steps"), STEPS, "opt_interval", "eval_interval")
    rename_keys(data.get("target"), TARGET, "every_opt_steps", "share")
    rename_keys(data.get("evaluation"), {"target_return": "target"}, *_EVALUATION)
    if has_keys(data, "passes", "minibatches", "rollout_steps", "num_envs"):
        rows = data["num_envs"] * data["rollout_steps"]
        data["minibatches"] = rows // data["minibatches"]
        rename_keys(data, {"passes": "num_epochs", "minibatches": "minibatch_size"})
    return data


EPOCHS_OF_ROLLOUTS = (
    "max_env_steps", "log_every_epochs", "evaluate_every_epochs", "keep_every_epochs", "max_opt_steps",
)  # fmt: skip
"""Keys that on-policy agents had in a section `epochs` before version 6."""


def to_6(data: dict[str, Any]) -> dict[str, Any]:
    """Move the keys of an on-policy agent's section `epochs` to the top, in its place."""
    is_on_policy = (
        has_keys(data, "epochs", "rollout_steps", "gae_lambda") and "counted_in" not in data
    )
    if not is_on_policy or not has_keys(epochs := data["epochs"], *EPOCHS_OF_ROLLOUTS):
        return data
    moved: dict[str, Any] = {}
    for key, value in data.items():
        moved |= epochs if key == "epochs" else {key: value}
    return moved


def to_2(data: dict[str, Any]) -> dict[str, Any]:
    """Add the keys of version 2, with the values that reproduce version 1."""
    if has_keys(evaluation := data.get("evaluation"), *_EVALUATION):
        env = data.get("env")
        # Agents were evaluated with every wrapper of the training env.
        is_wrapped = isinstance(env, dict) and env.get("wrappers")
        evaluation.setdefault("env", copy.deepcopy(env) if is_wrapped else None)
        evaluation.setdefault("more_envs", {})
        evaluation.setdefault("actions", "greedy")
        evaluation.setdefault("max_episode_length", 1_000_000)
    for section in sections_of(data):
        _silence(section)
    if has_keys(epochs := data.get("epochs"), "max_env_steps"):
        epochs.setdefault("max_opts", None)
        if data.get("counted_in") == "steps":
            data["epochs"] = None
    if has_keys(steps := data.get("steps"), "opt_interval"):
        steps.setdefault("record_agent_info_interval", 0)
        steps.setdefault("record_compute_cost_interval", 0)
        if data.get("counted_in") == "steps":
            data["settings"]["checkpoint"]["every_epochs"] = 0
        elif data.get("counted_in") == "epochs":
            data["steps"] = None
    _silence_evaluation(data)
    if "policy_loss" in data and has_keys(data.get("clip"), "initial", "schedule"):
        _split_clip(data)
    return data


def _split_clip(data: dict[str, Any]) -> None:
    """Move the KL coefficient, which was under `clip`, to its own section."""
    data.setdefault("target_kl", None)
    data.setdefault("kl", None)
    if data["policy_loss"] != "kl" or data["kl"] is not None:
        return
    schedule = data["clip"]["schedule"]
    if schedule["kind"] != "constant" or schedule["warmup_steps"]:
        raise ConfigError(
            "'clip.schedule' changes the price of the KL divergence (policy_loss: kl), which version 2"
            " adapts by kl.target instead; make the schedule constant without warm-up first"
        )
    data["kl"] = {"beta": data["clip"]["initial"], "target": None}
    data["clip"] = None


def _silence(section: dict[str, Any]) -> None:
    """Remove the keys of one section that its other keys leave unread."""
    if section.get("learned") is False and "target_entropy" in section:
        section["target_entropy"] = None
    normalise = section.get("normalise")
    if has_keys(normalise, "observations", "rewards", "clip") and not (
        normalise["observations"] or normalise["rewards"]
    ):
        section["normalise"] = None


def _silence_evaluation(data: dict[str, Any]) -> None:
    """Remove the keys of `evaluation` that are unread, by its other keys or for lack of evaluations."""
    evaluation = data.get("evaluation")
    if not has_keys(evaluation, *_EVALUATION):
        return
    if not evaluation["asynchronous"]:
        evaluation["timeout_seconds"] = None
    plan = data.get("steps") or data.get("epochs") or {}
    if not plan.get("eval_interval", plan.get("eval_freq", 1)):
        evaluation |= {"patience": None, "target_return": None}
    if evaluation["patience"] is None:
        evaluation["min_delta"] = 0.0
