"""What a parallel env has: its agents, and how many numbers each sees and how many actions each has."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from ludus.arena.playing.parallel_env import AnyParallelEnv, ParallelEnvMaker
from ludus.config.base import StrictConfig
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.errors import ConfigError


@dataclass(frozen=True)
class ParallelSpec:
    """The agents of an env, and the sizes of what each sees and does."""

    agent_names: tuple[str, ...]
    num_numbers: tuple[int, ...]
    """How many numbers each agent sees: its observation, flattened."""
    num_actions: tuple[int, ...]
    first_actions: tuple[int, ...]
    """The least action of each agent: 0, but for spaces that say otherwise."""


def maker_of(section: StrictConfig) -> ParallelEnvMaker:
    """Return what makes the envs of this section."""
    maker: ParallelEnvMaker = find("parallel_env", kind_of(section))(section)
    return maker


def spec_of(section: StrictConfig) -> ParallelSpec:
    """Return what the env of this section has; raise ConfigError where agents could not act in it."""
    return _spec_of(kind_of(section), type(section), section.model_dump_json())


@functools.lru_cache(maxsize=64)
def _spec_of(kind: str, config_class: type[StrictConfig], text: str) -> ParallelSpec:
    env = find("parallel_env", kind)(config_class.model_validate_json(text)).make()
    try:
        return read_spec(env, kind)
    finally:
        env.close()


def read_spec(env: AnyParallelEnv, kind: str) -> ParallelSpec:
    """Return what an env has."""
    names = tuple(getattr(env, "possible_agents", ()))
    if not names:
        raise ConfigError(
            f"the env {kind} names no possible_agents; an env must name all its agents beforehand"
        )
    if wrong := [name for name in names if not isinstance(name, str) or not name or "." in name]:
        raise ConfigError(
            f"the env {kind} has an agent {wrong[0]!r}; the name of an agent is a word without dots"
        )
    actions = [_actions(env.action_space(name), f"'{name}' of the env {kind}") for name in names]
    return ParallelSpec(
        agent_names=names,
        num_numbers=tuple(
            _num_numbers(env.observation_space(name), f"'{name}' of the env {kind}")
            for name in names
        ),
        num_actions=tuple(int(space.n) for space in actions),
        first_actions=tuple(int(space.start) for space in actions),
    )


def _actions(space: object, whose: str) -> spaces.Discrete:
    if not isinstance(space, spaces.Discrete):
        raise ConfigError(
            f"the actions of {whose} are {type(space).__name__}; agents of the arena choose one of several"
            " symbols, so give the env actions that are Discrete"
        )
    return space


def _num_numbers(space: spaces.Space[Any], whose: str) -> int:
    if isinstance(space, spaces.Dict) and "action_mask" in space.spaces:
        raise ConfigError(
            f"{whose} sees an action_mask, which says that some actions are not allowed; wrap the env so"
            " that every action is"
        )
    if not space.is_np_flattenable:
        raise ConfigError(
            f"what {whose} sees is {type(space).__name__}, which is not so many numbers; give it a Box,"
            " Discrete or a Dict of these"
        )
    return spaces.flatdim(space)


def flattened(space: spaces.Space[Any], seen: object) -> np.ndarray:
    """Return what an agent sees as one row of numbers."""
    if isinstance(space, spaces.Box):
        return np.asarray(seen, np.float32).reshape(-1)
    row: np.ndarray = np.asarray(spaces.flatten(space, seen), np.float32)
    return row
