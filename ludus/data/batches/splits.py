"""The splits of a data set: examples for training, validation and test."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.utils.data import Dataset

from ludus.config.base import StrictConfig
from ludus.core.errors import ConfigError


class Examples(Dataset[tuple[Tensor, ...]]):
    """A data set in memory: tensors whose first dimension is the example."""

    def __init__(self, *tensors: Tensor, columns: Sequence[str] = ()) -> None:
        """`columns` names the features of an input, if they have names."""
        if not tensors or any(len(tensor) != len(tensors[0]) for tensor in tensors):
            sizes = [len(tensor) for tensor in tensors]
            raise ConfigError(f"the tensors of a data set have {sizes} rows; they must agree")
        self.tensors = tensors
        self.columns = list(columns) or None

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int | slice | Sequence[int] | Tensor) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)


@dataclass(frozen=True)
class Splits:
    """The training, validation and test splits of one data set."""

    name: str
    task: Literal["classification", "regression"]
    train: Dataset[Any]
    validation: Dataset[Any] | None
    test: Dataset[Any] | None
    num_classes: int | None = None
    """The number of classes of the targets; None for regression, or if unknown."""


@runtime_checkable
class EncodesOthers(Protocol):
    """A data set whose encoding is measured on its training examples: classes, means, categories."""

    def others(self, section: StrictConfig, generator: torch.Generator) -> Dataset[Any] | None:
        """Return all examples of another section, encoded as those of this one split by the generator.

        None if the section is of a kind that cannot be encoded so.
        """


def split_rows(count: int, fractions: Sequence[float], generator: torch.Generator) -> list[Tensor]:
    """Return shuffled row numbers: one piece for each fraction, then the rest."""
    order = torch.randperm(count, generator=generator)
    pieces, start = [], 0
    for fraction in fractions:
        size = round(count * fraction)
        pieces.append(order[start : start + size])
        start += size
    if start >= count:
        raise ConfigError(
            f"the fractions {list(fractions)} leave nothing of {count} examples to train on"
        )
    return [*pieces, order[start:]]
