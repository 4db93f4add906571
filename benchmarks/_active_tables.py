"""What the strategies are compared on: two tables, each with a network, a training and a budget of labels.

They are those of configs/active.yaml and configs/active-table.yaml. No labels are used but those asked for,
so there is no early stopping: every fit has the same epochs, and begins from the first weights.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import ludus
from ludus.config.registry import find
from ludus.data.batches.splits import Examples
from ludus.seeds import derive, forked, generator


@dataclass(frozen=True)
class Table:
    """A data set, the network that learns it, and how many labels it gets."""

    data: dict[str, Any]
    model: dict[str, Any]
    initial_labels: int
    queries: int
    max_rounds: int
    max_epochs: int


def _shipped(name: str, **changed: int) -> Table:
    """Return the table of a shipped config, its validation examples being in the pool."""
    config: Any = ludus.example(name, **changed)
    return Table(
        data={**config.data.model_dump(), "validation_fraction": 0.0},
        model=config.model.model_dump(),
        initial_labels=config.initial_labels,
        queries=config.queries,
        max_rounds=config.max_rounds,
        max_epochs=config.max_epochs,
    )


TABLES = {
    # Fewer rounds than in the file, of twice the queries: half the time for the same labels.
    "digits": _shipped("active", queries=20, max_rounds=8),
    "synthetic": _shipped("active-table"),
}


def pool_and_test(table: Table, seed: int) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    """Return inputs and labels of the pool and of the test, as a ludus run of this seed splits them."""
    dataset = find("dataset", table.data["kind"])
    splits = dataset(dataset.Config(**table.data)).load(generator(seed, "split"))
    parts = []
    for part in (splits.train, splits.test):
        assert isinstance(part, Examples)
        inputs, labels = part.tensors
        parts.append((inputs, labels))
    return parts[0], parts[1]


def first_rows(table: Table, size: int, seed: int) -> Tensor:
    """Return the rows that a ludus run of this seed asks for first."""
    return torch.randperm(size, generator=generator(seed, "query", 0))[: table.initial_labels]


def network(table: Table, seed: int) -> nn.Module:
    """Return the network with the first weights of a ludus run of this seed."""
    made = find("model", table.model["kind"])
    with forked(derive(seed, "model")):
        module: nn.Module = made(made.Config(**table.model))
    return module


@torch.no_grad()
def accuracy(module: nn.Module, test: tuple[Tensor, Tensor]) -> float:
    """Return the share of the test examples that the network classifies rightly."""
    was_training = module.training
    module.eval()
    said_N = torch.cat([module(inputs_B).argmax(1) for inputs_B in test[0].split(512)])
    module.train(was_training)
    return float((said_N == test[1]).double().mean())
