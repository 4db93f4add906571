"""GradientUpdate: the base of gradient steps on agents: learner, learning rates per part, metrics."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import OptimizerConfig
from ludus.nn.update import Update


class GradientUpdate(Update):
    """The gradient update of agents, with a learning rate for each part of each agent.

    The network holds the agents as its attribute `agents`. Define `update`.
    """

    def __init__(
        self,
        network: nn.Module,
        optimizer: OptimizerConfig,
        *,
        max_grad_norm: float | None,
        highest_rate: float,
        rates: Mapping[str, Mapping[str, float]],
        terms: Sequence[str],
    ) -> None:
        """`rates` are the factors of the learning rate of each part of each agent, `terms` the names of the
        metrics of an update besides its loss and the norm of its gradient."""
        self.parts_of = {agent: groups_of(network, agent, own) for agent, own in rates.items()}
        learner = Learner(
            network,
            optimizer,
            max_grad_norm=max_grad_norm,
            highest_rate=highest_rate,
            groups=[group for own in self.parts_of.values() for group in own],
        )
        super().__init__(learner, ("loss", "grad_norm", *terms))
        self._statistics = statistics_of(self.learner, network, rates)

    def set_learning(self, agent: str, is_learning: bool) -> None:
        """Freeze an agent, or train it again; parts whose factor is 0 stay frozen."""
        for group in self.parts_of[agent]:
            self.learner.set_frozen(group.name, group.is_frozen or not is_learning)

    def step(self, columns: Sequence[Tensor], *, learning_rate: float) -> None:
        """Take one gradient step on a minibatch of rows."""
        self.num_counted += 1
        self.execute(*self.scalars(learning_rate), *columns)

    @contextlib.contextmanager
    def _frozen_as_they_are(self) -> Iterator[None]:
        """Keep the buffers of frozen parts unchanged in the block, such as the statistics of a
        normalisation."""
        before = [[one.clone() for one in part.buffers()] for part, _ in self._statistics]
        yield
        for (part, is_frozen), own in zip(self._statistics, before, strict=True):
            for buffer, old in zip(part.buffers(), own, strict=True):
                buffer.copy_(torch.where(is_frozen, old, buffer))

    def _counted(self, loss: Tensor, norm: Tensor, terms: Tensor) -> Tensor:
        """Accumulate the metrics of an update; return its loss."""
        self.totals.add_(torch.cat([torch.stack([loss, norm]), terms]))
        return loss


def groups_of(network: nn.Module, agent: str, rates: Mapping[str, float]) -> list[Group]:
    """Return a parameter group for each part of an agent that has something to train."""
    found = []
    for part, rate in rates.items():
        path = _path(agent, part)
        own = network.get_submodule(path)
        if any(parameter.requires_grad for parameter in own.parameters()):
            # A part with a factor of 0 never learns.
            name = f"{agent}/{part or 'all'}"
            found.append(Group(name, (path,), rate or 1.0, is_frozen=rate == 0))
    return found


def statistics_of(
    learner: Learner, network: nn.Module, rates: Mapping[str, Mapping[str, float]]
) -> list[tuple[nn.Module, Tensor]]:
    """Return each part of an agent that has buffers, and whether it is frozen: a tensor, as it may change."""
    found = []
    frozen = {
        part.group.name: part.is_frozen for part in learner.flat.parts if part.group is not None
    }
    for agent, own in rates.items():
        for name in own:
            part = network.get_submodule(_path(agent, name))
            is_frozen = frozen.get(f"{agent}/{name or 'all'}")
            if is_frozen is not None and next(part.buffers(), None) is not None:
                found.append((part, is_frozen))
    return found


def _path(agent: str, part: str) -> str:
    return ".".join(name for name in ("agents.members", agent, part) if name)
