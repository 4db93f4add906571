"""Configs of now as version 4 wrote them, for tests of what older files mean."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from ludus.config.migrations import sections_of

_TOP = {
    "log_every_rounds": "record_every_rounds", "keep_every_rounds": "save_every_rounds",
    "log_every_iterations": "record_every_iterations",
    "keep_every_iterations": "save_every_iterations", "num_epochs": "passes",
}  # fmt: skip
_SECTIONS = {
    "epochs": {
        "max_opt_steps": "max_opts", "log_every_epochs": "record_freq",
        "evaluate_every_epochs": "eval_freq", "keep_every_epochs": "save_freq",
    },
    "steps": {
        "max_opt_steps": "max_opts", "update_every_env_steps": "opt_interval",
        "log_every_opt_steps": "record_interval", "evaluate_every_opt_steps": "eval_interval",
        "keep_every_opt_steps": "save_interval",
        "log_agent_info_every_opt_steps": "record_agent_info_interval",
        "log_compute_cost_every_opt_steps": "record_compute_cost_interval",
    },
    "target": {"sync_every_opt_steps": "every_opt_steps", "tau": "share"},
    "past_players": {"keep_every_rounds": "every_rounds"},
    "host": {
        "collect_every_rounds": "steps_before_rollout",
        "sync_target_every_rounds": "steps_before_update_target",
    },
}  # fmt: skip
_SECTIONS["agent"] = _SECTIONS["host"]
_LOSS = {"value_coef": "critic_coef", "clip": "clip_epsilon", "value_clip": "clip_value"}


_EPOCHS = ("max_env_steps", *_SECTIONS["epochs"])


def as_version_5(config: Any) -> dict[str, Any]:
    """Return the data of a config under the names and meanings that its keys had in version 5."""
    data = deepcopy(config if isinstance(config, dict) else config.model_dump()) | {"version": 5}
    for section in [*sections_of(data)]:
        if "seed" in section and "settings" in section:
            section.pop("start", None)
        if "round_start" in section:
            section["start"] = section.pop("round_start")
    if "gae_lambda" in data and "max_env_steps" in data:
        data["epochs"] = {key: data.pop(key) for key in _EPOCHS}
    for section in [*sections_of(data)]:
        if "evaluate_every_epochs" in section and "keep" in section.get("evaluation", {}):
            changed = _with_validation(section) | {"version": 5}
            section.clear()
            section.update(changed)
    if "host" in data:
        data["evaluation"]["max_steps"] = data["evaluation"].pop("max_turns")
    if "game" in data:
        data["evaluation"]["games"] = data["evaluation"].pop("episodes")
    if "agents" in data and "rl" in data and "text_rl" not in data:
        if "evaluation" in data:
            data["evaluation"]["rollouts"] = data["evaluation"].pop("episodes")
        if "shared_body" in data["rl"]:
            data["rl"]["use_shared_body"] = data["rl"].pop("shared_body")
    return data


def _with_validation(section: dict[str, Any]) -> dict[str, Any]:
    """Return a section with early stopping and the best model as they were before version 6."""
    own, changed = section["evaluation"], {}
    by = {"metric": own["metric"], "mode": own["mode"]}
    stopping_by = by
    if own["stopping_metric"] is not None:
        stopping_by = {"metric": own["stopping_metric"], "mode": own["stopping_mode"]}
    stopping = {**stopping_by, "patience": own["patience"], "min_delta": own["min_delta"]}
    for key, value in section.items():
        if key == "evaluate_every_epochs":
            changed["with_validation"] = bool(value)
        elif key == "evaluation":
            changed["early_stopping"] = None if own["patience"] is None else stopping
            changed["best_model"] = {**by, "keep": own["keep"]} if own["keep"] else None
        else:
            changed[key] = value
    return changed


def as_version_4(config: Any) -> dict[str, Any]:
    """Return the data of a config under the names and meanings that its keys had in version 4."""
    data = as_version_5(config) | {"version": 4}
    evaluation = data.get("evaluation", {})
    if "num_envs" in data and "target" in evaluation:
        evaluation["target_return"] = evaluation.pop("target")
    for interval in ("every_rounds", "every_iterations"):
        if f"evaluate_{interval}" in data:
            evaluation[interval] = data.pop(f"evaluate_{interval}")
    if "minibatch_size" in data:
        roles = 2 if data.get("game", {}).get("kind") in ("tic_tac_toe", "connect_four") else 1
        rows = data.get("num_envs", data.get("num_games")) * data["rollout_steps"] * roles
        data["minibatches"] = rows // data.pop("minibatch_size")
    for name, names in _SECTIONS.items():
        if isinstance(data.get(name), dict):
            data[name] = _renamed(data[name], names)
    if "max_iterations" in data:
        for name in ("ppo", "reinforce", "spg"):
            for section in [*sections_of(data.get(name))]:
                changed = _renamed(section, _LOSS)
                section.clear()
                section.update(changed)
    for section in [*sections_of(data)]:
        if "with_validation" in section:
            names = {"max_opt_steps": "max_steps", "keep_every_epochs": "milestone_every_epochs"}
            changed = _renamed(section, names) | {"version": 4}
            section.clear()
            section.update(changed)
    return _renamed(data, _TOP)


def _renamed(section: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    return {names.get(key, key): value for key, value in section.items()}
