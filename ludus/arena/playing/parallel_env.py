"""Parallel env kinds: a section of keys, and the PettingZoo ParallelEnv made from them.

A new one is a file of `parallel_envs/`, or a class of your own with `@ludus.register("parallel_env",
kind)`.
"""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from types import ModuleType
from typing import Annotated, Any, ClassVar, Protocol

from gymnasium import Space
from pydantic import SerializeAsAny

from ludus.config.base import StrictConfig
from ludus.config.sections import registered
from ludus.core.errors import ConfigError

ParallelEnvSection = Annotated[SerializeAsAny[StrictConfig], registered("parallel_env")]


class AnyParallelEnv(Protocol):
    """The methods of PettingZoo's ParallelEnv that are used."""

    agents: list[str]
    """The present agents: all after a reset, then those that are not done."""
    possible_agents: list[str]

    def observation_space(self, agent: str) -> Space[Any]:
        """Return the observation space of this agent."""

    def action_space(self, agent: str) -> Space[Any]:
        """Return the action space of this agent."""

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; return the observation of each agent, and infos."""

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Return observations, rewards, terminations, truncations, and infos.

        The actions are those of the present agents, and the results include each of these.
        """

    def close(self) -> None:
        """Release its resources."""


class ParallelEnvMaker(ABC):
    """Makes envs of one section; derive it, and register it as a kind of `parallel_env`."""

    Config: ClassVar[type[StrictConfig]]

    def __init__(self, params: StrictConfig) -> None:
        self.params = params

    @abstractmethod
    def make(self) -> AnyParallelEnv:
        """Return a new env. `reset(seed=...)` must determine everything that happens besides the actions."""


def imported(module: str, *, what: str, install: str) -> ModuleType:
    """Return a module that ludus itself names; raise ConfigError where a dependency is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs a package that is not installed ({error}); pip install {install}"
        ) from error
