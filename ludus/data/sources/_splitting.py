"""Split a table of numbers and standardise its columns.

Shapes: N examples, D columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from ludus.config.base import Fraction, StrictConfig
from ludus.data.batches.splits import Examples, Splits, split_rows


class TableConfig(StrictConfig):
    """The split and scaling of a table."""

    validation_fraction: Fraction
    """The fraction of the examples kept for validation."""
    test_fraction: Fraction
    """The fraction of the examples kept for the final test."""
    standardise: bool
    """Standardise every column to mean 0 and standard deviation 1, measured on the training examples."""


def split_table(
    name: str,
    inputs_ND: np.ndarray,
    targets_N: np.ndarray,
    config: TableConfig,
    generator: torch.Generator,
    *,
    task: Literal["classification", "regression"],
    columns: Sequence[str],
) -> Splits:
    """Return these examples, scaled and split as the config says."""
    inputs = torch.tensor(inputs_ND, dtype=torch.float32)
    is_classes = task == "classification"
    targets = torch.tensor(targets_N, dtype=torch.int64 if is_classes else torch.float32)
    fractions = [config.validation_fraction, config.test_fraction]
    validation, test, train = split_rows(len(inputs), fractions, generator)
    if config.standardise:
        inputs = standardised(inputs, train)
        if not is_classes:
            targets = standardised(targets[:, None], train)[:, 0]
    examples = Examples(inputs, targets, columns=columns)
    return splits_of(name, task, examples, (validation, test, train))


def other_rows(
    inputs_ND: np.ndarray,
    targets_N: np.ndarray,
    config: TableConfig,
    generator: torch.Generator,
    *,
    count: int,
) -> Examples:
    """Return the examples of a classification after the first `count`, which are scaled as these are."""
    inputs, targets = torch.tensor(inputs_ND, dtype=torch.float32), torch.tensor(targets_N)
    *_, train = split_rows(count, [config.validation_fraction, config.test_fraction], generator)
    if config.standardise:
        inputs = standardised(inputs, train)
    return Examples(inputs[count:].contiguous(), targets[count:].to(torch.int64))


def splits_of(
    name: str,
    task: Literal["classification", "regression"],
    examples: Examples,
    rows: Sequence[Tensor],
    num_classes: int | None = None,
) -> Splits:
    """Return the examples at these rows: those for validation, for the test and for training."""
    validation, test, train = [
        Examples(
            *[one[some].contiguous() for one in examples.tensors], columns=examples.columns or ()
        )
        if len(some)
        else None
        for some in rows
    ]
    assert train is not None
    return Splits(name, task, train, validation, test, num_classes=num_classes)


def standardised(values_ND: Tensor, rows: Tensor) -> Tensor:
    """Return columns with mean 0 and standard deviation 1 in these rows."""
    mean_D = values_ND[rows].mean(0)
    deviation_D = values_ND[rows].std(0)
    # A constant column has no scale.
    return (values_ND - mean_D) / torch.where(deviation_D > 0, deviation_D, 1.0)
