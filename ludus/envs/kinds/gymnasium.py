"""Any env that is registered with gymnasium, by its id."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from typing import Any, Literal

import gymnasium
from gymnasium.envs.registration import EnvSpec as GymnasiumSpec

from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError, nearest
from ludus.envs.config import WrapperSection

# The physics engines of gymnasium's own envs.
_ENGINES = {"mujoco": "mujoco", "box2d": "Box2D"}

Scalar = str | bool | int | float | None


@register("env", "gymnasium")
class RegisteredEnv:
    """Builds envs of gymnasium's registry."""

    class Config(StrictConfig):
        """The env, its arguments and its wrappers."""

        kind: Literal["gymnasium"]
        """An env that is registered with gymnasium."""
        id: str
        """The env's id, such as CartPole-v1; a package registers its own envs when given with --plugin."""
        kwargs: dict[str, Scalar | list[Scalar]]
        """The keyword arguments of the env; {} keeps its defaults."""
        max_episode_steps: Positive | None
        """Truncate an episode after this many steps; null keeps the limit the env is registered with."""
        wrappers: list[WrapperSection]
        """The wrappers of the env, the first innermost."""

        def problems(self) -> Iterator[str]:
            """Yield why this id cannot be built."""
            if self.id not in gymnasium.registry:
                yield _unknown(self.id)

    @staticmethod
    def code_modules(config: Config) -> list[str]:
        """Return the modules that this env's results depend on, besides ludus."""
        spec = gymnasium.registry.get(config.id)
        entry = spec.entry_point if spec is not None else None
        module = (
            entry.partition(":")[0] if isinstance(entry, str) else entry.__module__ if entry else ""
        )
        engines = [name for part, name in _ENGINES.items() if part in module.split(".")]
        return ["gymnasium", *engines, *([module] if module else [])]

    @staticmethod
    def make(config: Config) -> gymnasium.Env[Any, Any]:
        """Return a new env, without gymnasium's checkers: ludus checks every step itself."""
        # gymnasium.make would import the module before a colon; a config must never import.
        if config.id not in gymnasium.registry:
            raise ConfigError(_unknown(config.id))
        spec: GymnasiumSpec = copy.copy(gymnasium.registry[config.id])
        spec.order_enforce = False
        reserved = sorted({"max_episode_steps", "disable_env_checker", "id"} & set(config.kwargs))
        if reserved:
            raise ConfigError(f"env {config.id}: kwargs must not hold {', '.join(reserved)}")
        try:
            return gymnasium.make(
                spec,
                max_episode_steps=config.max_episode_steps,
                disable_env_checker=True,
                **config.kwargs,
            )
        except TypeError as error:
            wrong = re.search(r"unexpected keyword argument '(\w+)'", str(error))
            if wrong is None:
                raise
            raise ConfigError(
                f"env {config.id}: kwargs.{wrong[1]} is no argument of this env; remove it"
            ) from error


def _unknown(name: str) -> str:
    # All ids would fill a screen, so they are listed only if one is near.
    hint = nearest(name, gymnasium.registry)
    if "Did you mean" not in hint:
        hint = " Envs of another package are known once it is imported: --plugin its_module."
    return f"no env has the id '{name}'.{hint}"
