"""Batches of a data set with its own collate function, such as tokenized texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from ludus.data.batches.loader import LoaderBatches


@runtime_checkable
class Collated(Protocol):
    """A map-style data set with a `collate`, and a check of the networks it can train."""

    collate: Callable[..., Any]

    def check_network(self, network: nn.Module) -> None:
        """Raise ConfigError if this network cannot learn from these examples."""


class CollatedBatches(LoaderBatches):
    """Batches made by the data set's own `collate`; resumed at their exact position."""

    def __init__(
        self,
        source: Collated,
        *,
        batch_size: int,
        shuffle: bool,
        drop_last: bool,
        workers: int,
        seed: int,
        device: torch.device,
    ) -> None:
        assert isinstance(source, Dataset)
        loader: DataLoader[Any] = DataLoader(
            source,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            num_workers=workers,
            collate_fn=source.collate,
        )
        super().__init__(loader, seed=seed, device=device)
        self.check_network: Callable[[nn.Module], None] = source.check_network
