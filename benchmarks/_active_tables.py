"""What the strategies are compared on: two tables, each with a network, a training and a budget of labels.

The settings are those of configs/active.yaml, but for what stands here: no labels beside those asked for, so
no validation data, no early stopping, and the same epochs for every fit, which begins from the first weights.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

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

    @property
    def num_labels(self) -> int:
        """All labels of the budget."""
        return self.initial_labels + (self.max_rounds - 1) * self.queries


TABLES = {
    "digits": Table(
        data={
            "kind": "digits",
            "validation_fraction": 0.0,
            "test_fraction": 0.25,
            "standardise": False,
        },
        model={
            "kind": "cnn",
            "channels": 1,
            "height": 8,
            "width": 8,
            "blocks": [16, 32],
            "outputs": 10,
            "activation": "relu",
            "dropout": 0.3,
        },
        initial_labels=20,
        queries=20,
        max_rounds=8,
        max_epochs=40,
    ),
    "synthetic": Table(
        data={
            "kind": "synthetic",
            "examples": 6000,
            "columns": 20,
            "informative": 10,
            "redundant": 6,
            "class_shares": [0.4, 0.3, 0.15, 0.1, 0.05],
            "clusters_per_class": 2,
            "separation": 1.5,
            "flipped_labels": 0.01,
            "table_seed": 0,
            "validation_fraction": 0.0,
            "test_fraction": 0.33,
            "standardise": True,
        },
        model={
            "kind": "mlp",
            "inputs": 20,
            "widths": [128, 128],
            "outputs": 5,
            "activation": "relu",
            "layer_norm": False,
            "dropout": 0.2,
        },
        initial_labels=20,
        queries=20,
        max_rounds=15,
        max_epochs=60,
    ),
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
