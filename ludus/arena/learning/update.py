"""The gradient steps on agents: on a minibatch of rows by a loss module, and the base of others.

Shapes: M rows of a minibatch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.libraries import TensorDictBase
from ludus.arena.playing.columns import named, to_tensordict
from ludus.config.start import StartConfig
from ludus.core.errors import LudusError
from ludus.core.starting import SavedTraining
from ludus.nn.engines.choice import Subject
from ludus.nn.engines.gate import is_plain
from ludus.nn.engines.unsaved import PlainState
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import OptimizerConfig
from ludus.nn.start import StartTarget, start_groups
from ludus.nn.update import Update

Forward = Callable[..., Any]


class LossNetwork(nn.Module):
    """The agents and a loss: called with the columns of a batch, it returns the loss and its terms."""

    agents: CombinedAgents
    terms: tuple[str, ...] = ()
    """The names of the terms."""


class Learned(LossNetwork):
    """The agents, the loss module and the advantage estimator, as one network.

    The latter two may have their own parameters and buffers.

    Called with the columns of a minibatch it returns the loss and its terms; called with only the
    observations it makes a forward pass of the agents, so that their statistics take in the batch.
    """

    def __init__(
        self, agents: CombinedAgents, objective: nn.Module, estimator: nn.Module | None
    ) -> None:
        super().__init__()
        self.agents = agents
        self.objective = objective
        if estimator is not None and estimator not in set(objective.modules()):
            self.estimator = estimator
        self.names: tuple[str, ...] = ()
        self.seen: tuple[str, ...] = ()
        self.seen_places: list[int] = []
        """The places of what is seen among the columns."""
        self.has_statistics = False
        """Whether a forward pass in train mode changes something."""

    def lay_out(self, rows: TensorDictBase, columns: Sequence[str]) -> None:
        """Take the names of the columns, and find the terms of the loss."""
        self.names = tuple(columns)
        self.seen = (*self.agents.data_names, "message_history", "round")
        self.seen_places = [self.names.index(name) for name in self.seen]
        self.has_statistics = any(
            name != "visible_AC" and "observed_" not in name
            for name, _ in self.agents.named_buffers()
        )
        found = self.objective(rows)
        self.terms = tuple(sorted(name for name in found.keys() if found[name].ndim == 0))  # noqa: SIM118
        if not self.losses:
            raise LudusError(
                f"{type(self.objective).__name__} returned no scalar term whose name begins with loss_;"
                " return a TensorDict with one or more of them"
            )
        if torch.is_grad_enabled() and not any(found[name].requires_grad for name in self.losses):
            raise LudusError(
                f"{type(self.objective).__name__} returned {', '.join(self.losses)}, no term of which depends"
                " on a weight of the agents; compute them from what the agents say, with gradients"
            )

    @property
    def losses(self) -> list[str]:
        """The terms whose sum is the loss."""
        return [name for name in self.terms if name.startswith("loss_")]

    def forward(self, *columns: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the loss, and all terms in the order of their names."""
        if len(columns) == len(self.seen) != len(self.names):
            # An agent needs only the methods that the loss calls.
            asks_values = getattr(self.objective, "asks_values", True)
            ask = self.agents.policy_and_value if asks_values else self.agents.policy
            ask(named(self.seen, columns))
            return None
        terms = self.objective(to_tensordict(named(self.names, columns), 1))
        losses = [terms[name] for name in self.losses]
        metrics = torch.stack([terms[name].detach() for name in self.terms])
        return torch.stack(losses).sum(), metrics


class GradientUpdate(Update):
    """The gradient update of agents, with a learning rate for each part of each agent. Define `update`."""

    def __init__(
        self,
        network: LossNetwork,
        optimizer: OptimizerConfig,
        *,
        max_grad_norm: float | None,
        highest_rate: float,
        rates: Mapping[str, Mapping[str, float]],
        start: StartConfig | None = None,
    ) -> None:
        """`rates` are the factors of the learning rate of each part of each agent."""
        own = {agent: groups_of(network, agent, own) for agent, own in rates.items()}
        groups = [group for found in own.values() for group in found]
        divided = start_groups(network, start, groups, named=name_in_models)
        self.parts_of = {
            agent: [one for one in divided if any(map(partial(is_divided_off, one), found))]
            for agent, found in own.items()
        }
        learner = Learner(
            network,
            optimizer,
            max_grad_norm=max_grad_norm,
            highest_rate=highest_rate,
            groups=divided,
        )
        super().__init__(learner, ("loss", "grad_norm", *network.terms))
        self._statistics = statistics_of(self.learner, network, rates)

    def starting(self) -> StartTarget:
        """Return the agents and the loss, which can start as those of another run."""
        return StartTarget({"": (self.learner, name_in_models)}, reads=name_in_models)

    @staticmethod
    def saved_training(state: Mapping[str, Any]) -> SavedTraining:
        """Return the agents in the saved state of a run."""
        return SavedTraining({"": state["update"]["learner"]})

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


class ArenaUpdate(GradientUpdate):
    """The gradient step on a minibatch, by the loss module; its state is that of agents and loss module."""

    worth_compiling = 4_000_000
    """The number of rows in all updates from which the minute or more of compiling pays."""

    @property
    def learned(self) -> Learned:
        """The agents, the loss module and the advantage estimator."""
        learned = self.learner.module
        assert isinstance(learned, Learned)
        return learned

    def is_worth_compiling(self, length: int) -> bool:
        """Return whether so many rows in all updates are enough, and the objective surely compiles."""
        # Read from the class itself: a subclass may not compile.
        compiles = vars(type(self.learned.objective)).get("compiles", False)
        return compiles and is_plain([self.learned.agents]) and super().is_worth_compiling(length)

    def subject(self) -> Subject:
        """Return the update; the objective decides what it computes, on the agents."""
        learned = self.learned
        return super().subject()._replace(owner=learned.objective, modules=[learned.agents])

    def note_plain_state(self) -> None:
        """Note the plain attributes; those that TorchRL sets on its modules do not affect the result."""
        self.plain_state = PlainState(self.learned, known=("torchrl", "tensordict"))

    def update(self, learning_rate: Tensor, *columns: Tensor) -> Tensor:
        def loss_fn(net: Forward) -> Any:
            return net(*columns)

        # The ratio compares with the policy that acted, so the network is in the same mode here.
        loss, norm, metrics = self.learner.step(loss_fn, learning_rate, in_train_mode=False)
        if (learned := self.learned).has_statistics:
            seen = [columns[place] for place in learned.seen_places]
            with self._frozen_as_they_are():
                self.learner.update_statistics(*seen, norm=norm)
        return self._counted(loss, norm, metrics)


def name_in_models(name: str) -> str:
    """Return the name of a weight without the path to the agents: it begins with an agent's name."""
    return name.removeprefix("agents.").removeprefix("members.")


def is_divided_off(part: Group, group: Group) -> bool:
    """Return whether a group is this one, or was divided off it."""
    return all(map(group.holds, part.parameters))


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
            group = f"{agent}/{name or 'all'}"
            # A group that `start` divided has words after its name, and may be frozen in part alone.
            divided = [one for one in frozen if one == group or one.startswith(f"{group}, ")]
            is_frozen = frozen[divided[0]] if divided else None
            if is_frozen is not None and next(part.buffers(), None) is not None:
                found.append((part, is_frozen))
    return found


def _path(agent: str, part: str) -> str:
    return ".".join(name for name in ("agents.members", agent, part) if name)
