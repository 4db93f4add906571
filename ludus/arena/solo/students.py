"""Students: agents that learn to classify the data alone, and their gradient step.

Shapes: N rows, A agents, R rounds, C channels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from ludus.arena.agents.body import Rows
from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.learning.update import GradientUpdate, LossNetwork
from ludus.arena.playing.columns import named
from ludus.arena.playing.dataset import ArenaDataset
from ludus.arena.protocol import NOTHING
from ludus.core.errors import LudusError
from ludus.fit.passes import Passes, accuracy

Forward = Callable[..., Any]


class Students(LossNetwork):
    """The agents as one network: called with the columns of a batch and the labels, it returns the loss."""

    def __init__(self, agents: CombinedAgents, *, max_message_rounds: int) -> None:
        super().__init__()
        self.agents = agents
        self.terms = tuple(f"{one}/{term}" for one in agents.names for term in ("loss", "accuracy"))
        self._shape = max_message_rounds, agents.num_channels

    def _rows(self, columns: Sequence[Tensor]) -> Rows:
        size, device = len(columns[0]), columns[0].device
        silence_NRC = torch.full((size, *self._shape), NOTHING, device=device)
        round_N = torch.zeros(size, dtype=torch.int64, device=device)
        data = named(self.agents.data_names, columns)
        return {**data, "message_history": silence_NRC, "round": round_N}

    @staticmethod
    def _checked(name: str, logits_N2: Tensor) -> Tensor:
        if logits_N2.ndim != 2 or logits_N2.shape[1] != 2:
            raise LudusError(
                f"the solo answer of agent '{name}' has shape {tuple(logits_N2.shape)}; return the logits"
                " of both labels, (rows, 2)"
            )
        return logits_N2

    def forward(self, *columns: Tensor) -> tuple[Tensor, Tensor]:
        """Return the sum of the cross-entropies, and (A, 2) cross-entropy and accuracy of each agent."""
        *data, y_N = columns
        rows = self._rows(data)
        answers = [
            self._checked(one, self.agents.member(one).solo(rows)) for one in self.agents.names
        ]
        losses_A = torch.stack([cross_entropy(logits_N2, y_N) for logits_N2 in answers])
        right_A = torch.stack([(one.argmax(1) == y_N).float().mean() for one in answers])
        return losses_A.sum(), torch.stack([losses_A.detach(), right_A], 1)

    def observe(self, dataset: ArenaDataset) -> None:
        """Update bodies that keep statistics with the data once, before they are first used."""
        if fresh := self.agents.fresh:
            data = [dataset.data[name] for name in self.agents.data_names]
            self.agents.observe(self._rows(data), fresh)

    def accuracy(
        self, name: str, dataset: ArenaDataset, size: int, *, is_interrupted: Callable[[], bool]
    ) -> float:
        """Return the accuracy of this agent, in batches of this size."""
        agent, data = self.agents.member(name), columns_of(dataset, self.agents.data_names)
        return accuracy(
            lambda columns: self._checked(name, agent.solo(self._rows(columns))),
            data[:-1],
            data[-1],
            size,
            is_interrupted=is_interrupted,
        )


def columns_of(dataset: ArenaDataset, data_names: Sequence[str]) -> list[Tensor]:
    """Return the columns of the data in this order, then the labels."""
    return [*(dataset.data[name] for name in data_names), dataset.y]


def passes_over(students: Students, dataset: ArenaDataset, size: int, seed: int) -> Passes:
    """Return the batches of students: every datum once an iteration, its data, then its label."""
    columns = columns_of(dataset, students.agents.data_names)
    return Passes(columns, size, seed=seed, name="arena/solo/order")


class SoloUpdate(GradientUpdate):
    """The gradient step on a batch: its data, then its labels."""

    def update(self, learning_rate: Tensor, *columns: Tensor) -> Tensor:
        def loss_fn(net: Forward) -> tuple[Tensor, Tensor]:
            loss, terms_A2 = net(*columns)
            return loss, terms_A2

        with self._frozen_as_they_are():
            loss, norm, terms_A2 = self.learner.step(loss_fn, learning_rate)
        return self._counted(loss, norm, terms_A2.reshape(-1))
