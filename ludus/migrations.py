"""Bring the data of an older config file to the current version, one step at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ludus.core.errors import ConfigError

VERSION = 2


def _to_2(data: dict[str, Any]) -> dict[str, Any]:
    """Give each key that version 2 added the value that version 1 behaved by."""
    if isinstance(evaluation := data.get("evaluation"), dict):
        env = data.get("env")
        # Agents were judged with every wrapper of the training env around theirs.
        is_wrapped = isinstance(env, dict) and env.get("wrappers")
        evaluation.setdefault("env", copy.deepcopy(env) if is_wrapped else None)
        evaluation.setdefault("more_envs", {})
        evaluation.setdefault("actions", "greedy")
        evaluation.setdefault("max_episode_length", 1_000_000)
    return data


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
    passed = []
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
