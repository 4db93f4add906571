"""The gradient step on a minibatch of rows, by a loss module; all of its state is here.

Shapes: M rows of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor, nn

from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.columns import named, to_tensordict
from ludus.core import states
from ludus.core.errors import LudusError
from ludus.nn.groups import Group
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam, Sgd

Forward = Callable[..., Any]


class Learned(nn.Module):
    """The agents and the loss module, which may have parameters and buffers of its own, as one network.

    Called with the columns of a minibatch it returns the loss and its terms; called with the columns that
    agents see alone it only lets them look, so that their statistics take in the batch.
    """

    def __init__(self, agents: CombinedAgents, objective: nn.Module) -> None:
        super().__init__()
        self.agents = agents
        self.objective = objective
        self.names: tuple[str, ...] = ()
        self.seen: tuple[str, ...] = ()
        self.terms: tuple[str, ...] = ()

    def lay_out(self, rows: TensorDictBase, columns: Sequence[str]) -> None:
        """Take the names of the columns, and find out which terms the loss has."""
        self.names = tuple(columns)
        self.seen = (*self.agents.data_names, "message_history", "round")
        found = self.objective(rows)
        self.terms = tuple(sorted(name for name in found.keys() if found[name].ndim == 0))  # noqa: SIM118
        if not any(name.startswith("loss_") for name in self.terms):
            raise LudusError(
                f"{type(self.objective).__name__} returned no scalar term whose name begins with loss_;"
                " return a TensorDict with one or more of them"
            )

    def forward(self, *columns: Tensor) -> tuple[Tensor, Tensor] | None:
        """Return the loss, and all terms in the order of their names."""
        if len(columns) == len(self.seen) != len(self.names):
            self.agents.policy_and_value(named(self.seen, columns))
            return None
        terms = self.objective(to_tensordict(named(self.names, columns), 1))
        losses = [terms[name] for name in self.terms if name.startswith("loss_")]
        told = torch.stack([terms[name].detach() for name in self.terms])
        return torch.stack(losses).sum(), told


class ArenaUpdate:
    """Holds the learner, and does everything that one update does; `update` is that by an engine."""

    def __init__(
        self,
        learned: Learned,
        optimizer: Adam | Sgd,
        *,
        max_grad_norm: float | None,
        highest_rate: float,
        rates: Mapping[str, Mapping[str, float]],
    ) -> None:
        """`rates` are the factors of the learning rate of each part of each agent."""
        self.learned = learned
        self.parts_of = {agent: self._groups_of(agent, own) for agent, own in rates.items()}
        groups = [group for own in self.parts_of.values() for group in own]
        self.learner = Learner(
            learned,
            optimizer,
            max_grad_norm=max_grad_norm,
            highest_rate=highest_rate,
            groups=groups,
        )
        self.device = self.learner.flat.device
        self._look = [learned.names.index(name) for name in learned.seen]
        self._has_statistics = any(
            name != "visible_AC" for name, _ in learned.agents.named_buffers()
        )
        size = len(learned.terms) + 2
        self.totals = torch.zeros(size, dtype=torch.float64, device=self.device)
        """The sum of each metric since the last record."""
        self.num_counted = 0
        self.update: Callable[..., Any] = self._update
        self._rate: Tensor | None = None
        self._last_rate: float | None = None

    def _groups_of(self, agent: str, rates: Mapping[str, float]) -> list[Group]:
        found = []
        for part, rate in rates.items():
            path = ".".join(name for name in ("agents.members", agent, part) if name)
            own = self.learned.get_submodule(path)
            if any(parameter.requires_grad for parameter in own.parameters()):
                # A factor of 0 is a part that never learns.
                found.append(
                    Group(f"{agent}/{part or 'all'}", (path,), rate or 1.0, is_frozen=rate == 0)
                )
        return found

    def set_learning(self, agent: str, is_learning: bool) -> None:
        """Freeze an agent, or let it learn again; parts whose factor is 0 stay frozen."""
        for group in self.parts_of[agent]:
            self.learner.set_frozen(group.name, group.is_frozen or not is_learning)

    def learn(self, columns: Sequence[Tensor], *, learning_rate: float) -> None:
        """Take one gradient step on some rows."""
        if learning_rate != self._last_rate:
            # Made here and sent on: made there, the host would wait for the device.
            self._rate = torch.tensor(learning_rate).to(self.device, non_blocking=True)
            self._last_rate = learning_rate
        self.num_counted += 1
        self.update(self._rate, *columns)

    def _update(self, learning_rate: Tensor, *columns: Tensor) -> Tensor:
        def loss_of(net: Forward) -> tuple[Tensor, Tensor]:
            loss, told = net(*columns)
            return loss, told

        # A ratio compares with the policy that acted, so this one is computed in the same mode.
        loss, norm, told = self.learner.improve(loss_of, learning_rate, in_train_mode=False)
        if self._has_statistics:
            self.learner.observe(*[columns[place] for place in self._look], norm=norm)
        self.totals.add_(torch.cat([torch.stack([loss, norm]), told]))
        return loss

    def metrics(self) -> dict[str, float]:
        """Return the mean of each metric since the last record."""
        if not self.num_counted:
            return {}
        names = ("loss", "grad_norm", *self.learned.terms)
        means = [total / self.num_counted for total in self.totals.tolist()]
        return {f"train/{name}": mean for name, mean in zip(names, means, strict=True)}

    def take_metrics(self) -> dict[str, float]:
        """Return the mean of each metric since the last call, and begin anew."""
        metrics = self.metrics()
        self.totals.zero_()
        self.num_counted = 0
        return metrics

    def state_dict(self) -> dict[str, Any]:
        """Return agents, loss module and optimizer, and the metrics not yet recorded."""
        counted = {"totals": self.totals, "num_counted": self.num_counted}
        return {"learner": self.learner.state_dict(), **counted}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy a saved state in."""
        states.check_keys(state, "learner", "totals", "num_counted")
        totals = states.like(state, "totals", self.totals)
        count = states.whole(state, "num_counted")
        with states.within("learner"):
            self.learner.load_state_dict(state["learner"])
        self.totals.copy_(totals)
        self.num_counted = count
