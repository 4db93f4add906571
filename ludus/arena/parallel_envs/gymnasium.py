"""The parallel env `gymnasium`: an env of gymnasium's registry, with one agent named `agent`."""

from __future__ import annotations

from typing import Any, Literal

import gymnasium

from ludus.arena.parallel_library import ParallelEnv
from ludus.arena.playing.parallel_env import ParallelEnvMaker
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core.errors import ConfigError, nearest
from ludus.envs.slot import error_line

_NAME = "agent"


class GymnasiumParameters(StrictConfig):
    """The env."""

    kind: Literal["gymnasium"]
    """An env of gymnasium, as a parallel env of one agent."""
    id: str
    """The env's id in gymnasium's registry, such as CartPole-v1."""


class OneAgentEnv(ParallelEnv[str, Any, Any]):
    """Wraps a gymnasium env as a parallel env of one agent."""

    metadata = {"name": "one_agent_v0", "render_modes": []}

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        self.env = env
        self.possible_agents = [_NAME]
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return that of the env."""
        return self.env.observation_space

    def action_space(self, agent: str) -> gymnasium.Space[Any]:
        """Return that of the env."""
        return self.env.action_space

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode."""
        seen, info = self.env.reset(seed=seed, options=options)
        self.agents = [_NAME]
        return {_NAME: seen}, {_NAME: info}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Take the agent's action."""
        each = self.env.step(actions[_NAME])
        if each[2] or each[3]:
            self.agents = []
        return tuple({_NAME: one} for one in each)

    def close(self) -> None:
        """Close the env."""
        self.env.close()


@register("parallel_env", "gymnasium")
class GymnasiumEnv(ParallelEnvMaker):
    """Makes envs of gymnasium's registry."""

    Config = GymnasiumParameters
    params: GymnasiumParameters

    def make(self) -> OneAgentEnv:
        """Return a new env."""
        name = self.params.id
        if name not in gymnasium.registry:
            raise ConfigError(
                f"'id' is {name}, which is not in gymnasium's registry.{nearest(name, gymnasium.registry)}"
            )
        try:
            return OneAgentEnv(gymnasium.make(name))
        except (gymnasium.error.DependencyNotInstalled, ImportError) as error:
            raise ConfigError(
                f"'id' is {name}, which needs a package that is not installed: {str(error).rstrip('.')};"
                " install it, or choose another id, such as CartPole-v1"
            ) from error
        except Exception as error:
            raise ConfigError(
                f"'id' is {name}, which gymnasium cannot make: {error_line(error)}; choose another id,"
                " such as CartPole-v1"
            ) from error
