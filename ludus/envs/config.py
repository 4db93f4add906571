"""The section of a config that names an env, and the construction of an env from it.

An env of your own is one small file, found with `--plugin my_module`:

    @register("env", "mine")
    class Mine(gymnasium.Env):
        class Config(StrictConfig):
            kind: Literal["mine"]
            ...
        def __init__(self, config: Config) -> None: ...

A kind may have `make(config)` (a static or class method) instead, if the env's class is not yours. If its
Config has a key `wrappers: list[WrapperSection]`, they are applied to it, the first innermost. A wrapper's
class is registered as "wrapper" and is built from the env and its own Config likewise:
`__init__(env, config)` or `make(env, config)`. One that changes rewards has `changes_rewards = True`, the
default for a gymnasium.RewardWrapper: evaluation leaves it out.
"""

from __future__ import annotations

from typing import Annotated, Any

import gymnasium
from pydantic import SerializeAsAny

from ludus.config.registry import find
from ludus.config.sections import StrictConfig, registered
from ludus.core.errors import ConfigError, LudusError
from ludus.envs.raw_rewards import OwnReward

AnyEnv = gymnasium.Env[Any, Any]
"""A gymnasium env, whatever its observations and actions."""

EnvSection = Annotated[SerializeAsAny[StrictConfig], registered("env")]
"""The type of a config key that holds an env of any registered kind."""
WrapperSection = Annotated[SerializeAsAny[StrictConfig], registered("wrapper")]
"""The type of a config key that holds a wrapper of any registered kind."""


def env_name(section: StrictConfig) -> str:
    """Return the env's name in messages: its id if it has one, else its kind."""
    return str(getattr(section, "id", None) or getattr(section, "kind", type(section).__name__))


def changes_rewards(wrapper: StrictConfig) -> bool:
    """Return whether the wrapper of this section changes rewards."""
    found = find("wrapper", _kind(wrapper))
    is_reward_wrapper = issubclass(found, gymnasium.RewardWrapper)
    return bool(getattr(found, "changes_rewards", is_reward_wrapper))


def with_own_rewards(section: StrictConfig) -> StrictConfig:
    """Return the config of the same env, without the wrappers that change its rewards."""
    wrappers = getattr(section, "wrappers", [])
    kept = [wrapper for wrapper in wrappers if not changes_rewards(wrapper)]
    return section if kept == wrappers else section.model_copy(update={"wrappers": kept})


def make_env(section: StrictConfig) -> AnyEnv:
    """Return a new env with its wrappers; raise ConfigError, with the reason, if it cannot be built."""
    env = _made(find("env", _kind(section)), f"env {env_name(section)}", section)
    is_shaped = False
    for wrapper in getattr(section, "wrappers", ()):
        if not isinstance(wrapper, StrictConfig):
            raise ConfigError(
                f"env {env_name(section)}: its Config must declare 'wrappers' as"
                " list[WrapperSection], which ludus.envs.config has"
            )
        kind = _kind(wrapper)
        if changes_rewards(wrapper) and not is_shaped:
            # Below the first of them, so that the env's own rewards are known too.
            env, is_shaped = OwnReward(env), True
        try:
            env = _made(
                find("wrapper", kind), f"wrapper {kind} of {env_name(section)}", env, wrapper
            )
        except BaseException:
            env.close()
            raise
    return env


def _kind(section: StrictConfig) -> str:
    return str(section.kind)  # type: ignore[attr-defined]


def _made(found: type[Any], what: str, *arguments: object) -> AnyEnv:
    """Return what the registered class makes from these arguments."""
    make = getattr(found, "make", found)
    try:
        env = make(*arguments)
    except LudusError:
        raise
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        raise ConfigError(f"{what} needs a package that is not installed: {error}") from error
    except Exception as error:
        raise ConfigError(f"{what} cannot be made: {type(error).__name__}: {error}") from error
    if not isinstance(env, gymnasium.Env):
        raise ConfigError(f"{what} is a {type(env).__name__}; it must be a gymnasium.Env")
    return env
