"""What a kind of parallel env is: a section of keys, and an env of PettingZoo's ParallelEnv made by them.

Adding one is a file of `parallel_envs/`, or a class of your own with `@ludus.register("parallel_env", kind)`.
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
    """What is used of PettingZoo's ParallelEnv."""

    agents: list[str]
    """Those that are there: all after a reset, and then those that are not done."""
    possible_agents: list[str]

    def observation_space(self, agent: str) -> Space[Any]:
        """Return what this agent may see."""

    def action_space(self, agent: str) -> Space[Any]:
        """Return what this agent may do."""

    def reset(self, seed: int | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begin an episode; return what each agent sees, and infos."""

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        """Return what each sees and gains, who has terminated, who was truncated, and infos.

        The actions are of the agents that are there, and each of these is told of.
        """

    def close(self) -> None:
        """Let go of what it holds."""


class ParallelEnvMaker(ABC):
    """Makes envs of one section; derive it, and register it as a kind of `parallel_env`."""

    Config: ClassVar[type[StrictConfig]]

    def __init__(self, params: StrictConfig) -> None:
        self.params = params

    @abstractmethod
    def make(self) -> AnyParallelEnv:
        """Return a new env. `reset(seed=...)` must decide all that happens in it besides the actions."""


def imported(module: str, *, what: str, install: str) -> ModuleType:
    """Return a module that ludus itself names; raise ConfigError where what it needs is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(
            f"{what} needs a package that is not installed ({error}); pip install {install}"
        ) from error
