"""Bring the data of an older config file to the current version, one step at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeGuard

from ludus.core.errors import ConfigError

VERSION = 2


def _renamed(data: dict[str, Any]) -> dict[str, Any]:
    """Give each key the name it has now: version 2 changed some while it was the current one.

    A key is known by those beside it, for another kind may have one of the same name of its own.
    """
    names: dict[str, str] = {}
    if _has(data, "compile", "optimizer", "precision") and "engine" not in data:
        names["compile"] = "engine"
        if isinstance(data["compile"], bool):
            data["compile"] = "compiled" if data["compile"] else "tape"
    if _has(data, "replay", "learning_starts") and data.get("schedule") in ("steps", "epochs"):
        names["schedule"] = "counted_in"
    is_agent = _has(data.get("evaluation"), *_EVALUATION)
    if is_agent and _has(data.get("learning_rate"), "kind", "warmup_steps"):
        names["learning_rate"] = "learning_rate_schedule"
    return {names.get(key, key): value for key, value in data.items()}


def _to_2(data: dict[str, Any]) -> dict[str, Any]:
    """Give each key that version 2 added the value that version 1 behaved by.

    Version 2 refuses what nothing reads, so what version 1 did not read becomes null, 0 or false. A
    section is known by its keys, for another kind may have one of the same name that means its own.
    """
    if _has(evaluation := data.get("evaluation"), *_EVALUATION):
        env = data.get("env")
        # Agents were judged with every wrapper of the training env around theirs.
        is_wrapped = isinstance(env, dict) and env.get("wrappers")
        evaluation.setdefault("env", copy.deepcopy(env) if is_wrapped else None)
        evaluation.setdefault("more_envs", {})
        evaluation.setdefault("actions", "greedy")
        evaluation.setdefault("max_episode_length", 1_000_000)
    if _has(data, "with_validation", "optimizer", "early_stopping"):
        data.setdefault("parameter_groups", [])
    for section in _sections(data):
        _silence(section)
    if _has(epochs := data.get("epochs"), "max_env_steps"):
        epochs.setdefault("max_opts", None)
        if data.get("counted_in") == "steps":
            data["epochs"] = None
    if _has(steps := data.get("steps"), "opt_interval"):
        steps.setdefault("record_agent_info_interval", 0)
        steps.setdefault("record_compute_cost_interval", 0)
        if data.get("counted_in") == "steps":
            data["settings"]["checkpoint"]["every_epochs"] = 0
        elif data.get("counted_in") == "epochs":
            data["steps"] = None
    _silence_evaluation(data)
    if "policy_loss" in data and _has(data.get("clip"), "initial", "schedule"):
        _split_clip(data)
    return data


_EVALUATION = ("episodes", "envs", "asynchronous", "patience", "min_delta", "target_return")
"""The keys by which the section on how an agent is judged is known."""


def _has(section: object, *keys: str) -> TypeGuard[dict[str, Any]]:
    """Return whether this is a section with these keys, whatever else it has."""
    return isinstance(section, dict) and section.keys() >= {*keys}


def _split_clip(data: dict[str, Any]) -> None:
    """Move what stood under `clip` and meant the price of KL divergence to a section of its own."""
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


def _sections(data: object) -> Iterator[dict[str, Any]]:
    """Yield every section of the data, the outermost first."""
    if isinstance(data, dict):
        yield data
    for child in (
        data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    ):
        yield from _sections(child)


def _silence(section: dict[str, Any]) -> None:
    """Take out of one section what its other keys keep from being read."""
    if _has(section, "nesterov") and section.get("kind") == "sgd" and section.get("momentum") == 0:
        section["nesterov"] = False
    if section.get("learned") is False and "target_entropy" in section:
        section["target_entropy"] = None
    normalise = section.get("normalise")
    if _has(normalise, "observations", "rewards", "clip") and not (
        normalise["observations"] or normalise["rewards"]
    ):
        section["normalise"] = None


def _silence_evaluation(data: dict[str, Any]) -> None:
    """Take out of `evaluation` what its other keys, or the want of evaluations, keep from being read."""
    evaluation = data.get("evaluation")
    if not _has(evaluation, *_EVALUATION):
        return
    if not evaluation["asynchronous"]:
        evaluation["timeout_seconds"] = None
    plan = data.get("steps") or data.get("epochs") or {}
    if not plan.get("eval_interval", plan.get("eval_freq", 1)):
        evaluation |= {"patience": None, "target_return": None}
    if evaluation["patience"] is None:
        evaluation["min_delta"] = 0.0


MIGRATIONS: dict[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: _to_2}
"""From each older version, the function that gives new keys the value of the old behaviour."""


def migrate(data: dict[str, Any], *, source: str) -> tuple[dict[str, Any], list[int]]:
    """Return the data at the current version, and the versions it passed through.

    The steps may change the data in place.
    """
    version = data.get("version")
    if version is None:
        raise ConfigError(f"{source}: 'version' is missing; the current one is {VERSION}")
    if type(version) is not int or version < 1:
        raise ConfigError(
            f"{source}: 'version' is {version!r}, which never was one; the current one is {VERSION}"
        )
    if version > VERSION:
        raise ConfigError(
            f"{source}: version {version} is newer than this ludus reads ({VERSION}); update ludus"
        )
    passed, data = [], _renamed(data)
    while version < VERSION:
        step = MIGRATIONS[version]
        try:
            data = step(data)
        except (KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                f"{source}: not a complete file of version {version}, so it cannot be brought to"
                f" {version + 1}: {type(error).__name__} {error}"
            ) from error
        version += 1
        data["version"] = version
        passed.append(version)
    return data, passed
