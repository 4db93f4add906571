"""The data of a scenario: tensors by name, a row for each datum, and the labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ludus.core.errors import ConfigError


@dataclass(frozen=True)
class ArenaDataset:
    """N data and their labels, 0 or 1; agents observe the data, never the labels."""

    data: Mapping[str, Tensor]
    """By name, tensors whose first dimension is the datum."""
    y: Tensor
    """(N,) the labels, as integers."""

    def __post_init__(self) -> None:
        lengths = {name: len(tensor) for name, tensor in self.data.items()}
        if not lengths or not len(self.y):
            raise ConfigError("a dataset of the scenario is empty; give it at least one datum")
        if wrong := [name for name, length in lengths.items() if length != len(self.y)]:
            raise ConfigError(
                f"'{wrong[0]}' of a dataset has {lengths[wrong[0]]} rows and there are {len(self.y)}"
                " labels; give each datum one label"
            )
        if not bool(((self.y == 0) | (self.y == 1)).all()):
            raise ConfigError("the labels of a dataset must be 0 or 1, which a verifier can decide")

    def __len__(self) -> int:
        return len(self.y)

    def rows(self, index: Tensor) -> dict[str, Tensor]:
        """Return the data at these indices, for any shape of the index."""
        flat = index.reshape(-1)
        return {
            name: tensor.index_select(0, flat).reshape(*index.shape, *tensor.shape[1:])
            for name, tensor in self.data.items()
        }

    def to(self, device: torch.device) -> ArenaDataset:
        """Return the dataset on this device."""
        data = {name: tensor.to(device) for name, tensor in self.data.items()}
        return ArenaDataset(data, self.y.to(device))
