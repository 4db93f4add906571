"""Known labels from the data: a simulation of active learning."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ludus.active.examples import PoolExamples
from ludus.active.oracle import Answers, Labels
from ludus.config.base import StrictConfig
from ludus.config.registry import register
from ludus.core import Run
from ludus.core.errors import ConfigError


@register("oracle", "known")
class Known:
    """Looks labels up in the data, to compare strategies."""

    class Config(StrictConfig):
        """Nothing to set."""

        kind: Literal["known"]
        """The targets in the data, revealed when queried."""

    def __init__(self, config: Config) -> None:
        pass

    def check(self, examples: PoolExamples, labels: Labels, *, model: object) -> None:
        """Check that there are targets of more than one class; if in memory, that all are valid labels."""
        if not examples.has_targets:
            examples.targets(torch.tensor([0]))
        if (targets_N := examples.targets_in_memory) is None:
            return
        if targets_N.ndim > 1:
            raise ConfigError(
                f"a target of the pool has the shape {tuple(targets_N.shape[1:])}; give one number for each"
                " example"
            )
        for row in labels.first_wrong(targets_N):
            labels.checked(row, targets_N[row])
        if labels.num_classes is not None and len(targets_N.unique()) == 1:
            raise ConfigError(
                f"all {len(targets_N)} examples of the pool are of class {int(targets_N[0])}; to learn what"
                " tells classes apart takes two at least"
            )

    def answer(self, rows: Tensor, examples: PoolExamples, answers: Answers, *, run: Run) -> None:
        """Put the targets of all rows."""
        answers.put(rows.tolist(), examples.targets(rows).tolist())

    def waits_for(self, run: Run) -> str:
        return "the data has none for them"
