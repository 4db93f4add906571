"""Scenario: the data that agents speak about, and the symbols of their messages.

A new scenario is one folder of `scenarios/`: its `__init__.py` registers a class derived from Scenario.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import SerializeAsAny
from torch import Tensor

from ludus.arena.playing.dataset import ArenaDataset
from ludus.arena.playing.environment import Environment, MessageEnvironment
from ludus.config.base import StrictConfig
from ludus.config.sections import registered
from ludus.core.errors import ConfigError

if TYPE_CHECKING:
    from ludus.arena.agents.combined import CombinedAgents
    from ludus.arena.protocol import ProtocolHandler

ScenarioSection = Annotated[SerializeAsAny[StrictConfig], registered("scenario")]


@dataclass(frozen=True)
class Datasets:
    """The training data, the validation data that select the best model, and the held-out test data."""

    train: ArenaDataset
    validation: ArenaDataset
    test: ArenaDataset


@dataclass(frozen=True)
class ObservationSizes:
    """The sizes of the inputs of bodies; everything else a body needs follows from the shapes of the data."""

    shapes: dict[str, tuple[int, ...]]
    """By name, the shape of one datum."""
    num_symbols: int
    """The number of symbols of a message."""
    max_message_rounds: int
    num_channels: int


class NoDatasets(Datasets):
    """The datasets of a scenario made of environments: access raises an error that says so."""

    def __init__(self, scenario: str) -> None:
        object.__setattr__(self, "_scenario", scenario)

    def __getattr__(self, name: str) -> ArenaDataset:
        if name.startswith("_"):
            raise AttributeError(name)
        raise ConfigError(
            f"the scenario {self._scenario} has envs and no data with labels; choose another scenario, or a"
            " trainer that plays episodes, such as vanilla_ppo"
        )


class Scenario(ABC):
    """Makes the datasets of a config; derive it, and register it as a kind of `scenario`."""

    Config: ClassVar[type[StrictConfig]]

    def __init__(self, params: StrictConfig) -> None:
        self.params = params

    @abstractmethod
    def make_datasets(self, seed: int) -> Datasets:
        """Return the three datasets, the same for the same seed and config."""

    @property
    @abstractmethod
    def num_symbols(self) -> int:
        """The number of symbols of a message: nodes, patches of an image, words."""

    def symbol_name(self, symbol: int) -> str:
        """Return the name of a symbol in a transcript."""
        return str(symbol)

    def describe(self, datum: Mapping[str, Tensor]) -> list[str]:
        """Return lines that describe a datum in a transcript."""
        return []

    @classmethod
    def joined(cls, params: StrictConfig, handler: ProtocolHandler) -> ProtocolHandler:
        """Return the protocol for a scenario of these parameters; raise ConfigError where they do not fit."""
        if not handler.has_rounds:
            raise ConfigError(
                "the protocol parallel is that of an env; make 'scenario' one of the kind pettingzoo, or"
                " choose a protocol in which agents speak, such as nip"
            )
        return handler

    def data_names(self, datasets: Datasets) -> list[str]:
        """Return the names of the observations besides messages."""
        return list(datasets.train.data)

    def seen_by(self, agent: str, datasets: Datasets, handler: ProtocolHandler) -> ObservationSizes:
        """Return the sizes of the inputs of this agent's body."""
        return self.seen(datasets.train, handler)

    def make_environment(
        self,
        name: str,
        datasets: Datasets,
        handler: ProtocolHandler,
        *,
        num_envs: int,
        num_steps: int | None,
        seed: int,
        device: torch.device,
    ) -> Environment:
        """Return the environment for `train`, `validation` or `test`: episodes about that dataset.

        `num_steps` is the number of steps of each environment where episodes have no rounds.
        """
        dataset: ArenaDataset = getattr(datasets, name)
        return MessageEnvironment(
            dataset, handler, num_envs=num_envs, seed=seed, name=name, device=device
        )

    def seen(self, dataset: ArenaDataset, handler: ProtocolHandler) -> ObservationSizes:
        """Return the sizes of a body's inputs."""
        return ObservationSizes(
            shapes={name: tuple(tensor.shape[1:]) for name, tensor in dataset.data.items()},
            num_symbols=self.num_symbols,
            max_message_rounds=handler.max_message_rounds,
            num_channels=len(handler.message_channel_names),
        )


@dataclass
class ScenarioInstance:
    """Everything that a trainer is given of an experiment except its parameters and settings."""

    datasets: Datasets
    protocol_handler: ProtocolHandler
    agents: CombinedAgents
    train_environment: Environment
    validation_environment: Environment
    test_environment: Environment
    device: torch.device
    scenario: Scenario | None = None
    """The scenario that made the datasets; None where a script did."""

    @property
    def environments(self) -> tuple[Environment, Environment, Environment]:
        """The environments for training, evaluation and testing."""
        return self.train_environment, self.validation_environment, self.test_environment

    @property
    def train_dataset(self) -> ArenaDataset:
        """The training data."""
        return self.datasets.train

    @property
    def test_dataset(self) -> ArenaDataset:
        """The held-out test data."""
        return self.datasets.test
