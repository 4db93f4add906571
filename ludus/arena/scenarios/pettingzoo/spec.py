"""The spec of a parallel env: its agents, and the sizes of their observations and actions."""

from __future__ import annotations

import functools
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Literal

from gymnasium import spaces

from ludus.arena.playing.parallel_env import AnyParallelEnv, ParallelEnvMaker
from ludus.config.base import StrictConfig
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.core.errors import ConfigError, LudusError
from ludus.envs.slot import error_line


@dataclass(frozen=True)
class ParallelSpec:
    """The agents of an env, and the sizes of their observations and actions."""

    agent_names: tuple[str, ...]
    num_numbers: tuple[int, ...]
    """The size of each agent's flattened observation."""
    num_actions: tuple[int, ...]
    first_actions: tuple[int, ...]
    """The least action of each agent: 0, unless its space says otherwise."""


def maker_of(section: StrictConfig) -> ParallelEnvMaker:
    """Return the maker of the envs of this section."""
    maker: ParallelEnvMaker = find("parallel_env", kind_of(section))(section)
    return maker


def make_env(section: StrictConfig) -> AnyParallelEnv:
    """Return a new env of this section; raise ConfigError where it cannot be made."""
    kind = kind_of(section)
    try:
        env: AnyParallelEnv | None = maker_of(section).make()
    except LudusError:
        raise
    except Exception as error:
        raise ConfigError(f"the env {kind} cannot be made: {error_line(error)}") from error
    if env is None:
        raise ConfigError(f"`make` of the env {kind} returned None; return the env that it makes")
    return env


def close_env(env: AnyParallelEnv, owner: str) -> None:
    """Close an env; one without `close` holds no resources."""
    close = getattr(env, "close", None)
    if not callable(close):
        return
    try:
        close()
    except Exception as error:
        raise LudusError(f"close() of {owner} raised {error_line(error)}") from error


def spec_of(section: StrictConfig) -> ParallelSpec:
    """Return the spec of this section's env; raise ConfigError where agents could not act in it."""
    return _spec_of(kind_of(section), type(section), section.model_dump_json())


@functools.lru_cache(maxsize=64)
def _spec_of(kind: str, config_class: type[StrictConfig], text: str) -> ParallelSpec:
    env = make_env(config_class.model_validate_json(text))
    try:
        return read_spec(env, kind)
    finally:
        close_env(env, f"the env {kind}")


def read_spec(env: AnyParallelEnv, kind: str) -> ParallelSpec:
    """Return the spec of an env."""
    owner = f"the env {kind}"
    names = _names(env, owner)
    actions = [
        _actions(space_of(env, "action_space", name, owner), f"'{name}' of {owner}")
        for name in names
    ]
    return ParallelSpec(
        agent_names=names,
        num_numbers=tuple(
            _num_numbers(space_of(env, "observation_space", name, owner), f"'{name}' of {owner}")
            for name in names
        ),
        num_actions=tuple(int(space.n) for space in actions),
        first_actions=tuple(int(space.start) for space in actions),
    )


def _names(env: AnyParallelEnv, owner: str) -> tuple[str, ...]:
    given: object = getattr(env, "possible_agents", None)
    if given is not None and (isinstance(given, str) or not isinstance(given, Collection)):
        raise ConfigError(
            f"possible_agents of {owner} is a {type(given).__name__}; make it a list of names"
        )
    names: tuple[str, ...] = tuple(given or ())
    if not names:
        raise ConfigError(
            f"{owner} names no possible_agents; an env must name all its agents beforehand"
        )
    if wrong := [name for name in names if not isinstance(name, str) or not name or "." in name]:
        raise ConfigError(
            f"{owner} has an agent {wrong[0]!r}; the name of an agent is a word without dots"
        )
    if len(set(names)) < len(names):
        raise ConfigError(
            f"{owner} names an agent twice in its possible_agents, {', '.join(names)}; give each a name"
            " of its own"
        )
    return names


def space_of(
    env: AnyParallelEnv,
    method: Literal["observation_space", "action_space"],
    name: str,
    owner: str,
) -> spaces.Space[Any]:
    """Return an observation or action space of an agent; raise ConfigError where the env does not define
    it."""
    ask: object = getattr(env, method, None)
    if not callable(ask):
        raise ConfigError(
            f"{method} of {owner} is a {type(ask).__name__} and no method; define"
            f" {method}(self, agent), which returns the space of one agent"
        )
    try:
        space = ask(name)
    except Exception as error:
        raise ConfigError(f"{method}('{name}') of {owner} raised {error_line(error)}") from error
    if not isinstance(space, spaces.Space):
        raise ConfigError(
            f"{method}('{name}') of {owner} returned a {type(space).__name__}, which is no space of"
            " gymnasium; return a Box or Discrete, say"
        )
    return space


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
