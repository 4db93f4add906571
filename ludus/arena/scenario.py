"""A scenario: the data that agents speak about, and the symbols they speak in; and all that is made of one.

Adding a scenario is one folder of `scenarios/`: its `__init__.py` registers a class derived from Scenario.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import SerializeAsAny

from ludus.arena.dataset import ArenaDataset
from ludus.config.base import StrictConfig
from ludus.config.sections import registered

if TYPE_CHECKING:
    from ludus.arena.agents.combined import CombinedAgents
    from ludus.arena.environment import Environment
    from ludus.arena.protocol import ProtocolHandler

ScenarioSection = Annotated[SerializeAsAny[StrictConfig], registered("scenario")]


@dataclass(frozen=True)
class Datasets:
    """What is learned from, what chooses the best model, and what nothing was chosen by."""

    train: ArenaDataset
    validation: ArenaDataset
    test: ArenaDataset


@dataclass(frozen=True)
class Seen:
    """The sizes of what bodies see; all else a body needs stands in the data's shapes."""

    shapes: dict[str, tuple[int, ...]]
    """By name, the shape of one datum."""
    num_symbols: int
    """How many symbols a message is chosen from."""
    max_message_rounds: int
    num_channels: int


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
        """How many symbols a message is chosen from: nodes, patches of an image, words."""

    def seen(self, dataset: ArenaDataset, handler: ProtocolHandler) -> Seen:
        """Return the sizes of what a body is built for."""
        return Seen(
            shapes={name: tuple(tensor.shape[1:]) for name, tensor in dataset.data.items()},
            num_symbols=self.num_symbols,
            max_message_rounds=handler.max_message_rounds,
            num_channels=len(handler.message_channel_names),
        )


@dataclass
class ScenarioInstance:
    """Everything that a trainer is given of an experiment but its parameters and settings."""

    datasets: Datasets
    protocol_handler: ProtocolHandler
    agents: CombinedAgents
    train_environment: Environment
    validation_environment: Environment
    test_environment: Environment
    device: torch.device

    @property
    def train_dataset(self) -> ArenaDataset:
        """What is learned from."""
        return self.datasets.train

    @property
    def test_dataset(self) -> ArenaDataset:
        """What nothing is chosen by."""
        return self.datasets.test
