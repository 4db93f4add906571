"""The gradient step on a minibatch of rows, by a loss module; all of its state is here.

Shapes: M rows of a minibatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ludus.arena.agents.combined import CombinedAgents
from ludus.arena.learning.gradient_update import GradientUpdate
from ludus.arena.libraries import TensorDictBase
from ludus.arena.playing.columns import named, to_tensordict
from ludus.core.errors import LudusError
from ludus.nn.engines.choice import EngineKey, EngineName, Subject, choose_engine
from ludus.nn.engines.gate import is_plain
from ludus.nn.optimizer import OptimizerConfig

Forward = Callable[..., Any]
_WORTH_COMPILING = 4_000_000
"""The number of rows in all updates from which the minute or more of compiling pays."""


class Learned(nn.Module):
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
        self.terms: tuple[str, ...] = ()

    def lay_out(self, rows: TensorDictBase, columns: Sequence[str]) -> None:
        """Take the names of the columns, and find the terms of the loss."""
        self.names = tuple(columns)
        self.seen = (*self.agents.data_names, "message_history", "round")
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
        told = torch.stack([terms[name].detach() for name in self.terms])
        return torch.stack(losses).sum(), told


class ArenaUpdate(GradientUpdate):
    """The gradient step on a minibatch, by the loss module; its state is that of agents and loss module."""

    def __init__(
        self,
        learned: Learned,
        optimizer: OptimizerConfig,
        *,
        max_grad_norm: float | None,
        highest_rate: float,
        rates: Mapping[str, Mapping[str, float]],
    ) -> None:
        """`rates` are the factors of the learning rate of each part of each agent."""
        self.learned = learned
        self._look = [learned.names.index(name) for name in learned.seen]
        self._has_statistics = any(
            name != "visible_AC" and "observed_" not in name
            for name, _ in learned.agents.named_buffers()
        )
        super().__init__(
            learned,
            optimizer,
            max_grad_norm=max_grad_norm,
            highest_rate=highest_rate,
            rates=rates,
            terms=learned.terms,
        )

    def choose_engine(
        self, key: EngineKey, *, num_rows: int, has_begun: bool, tell: Callable[[str], None]
    ) -> tuple[EngineName, list[str]]:
        """Choose the engine of the update; return it, and the messages for the user.

        `num_rows` is the number of rows in all updates of the run.
        """
        learned = self.learned
        # Read from the class itself: a subclass may not compile.
        compiles = vars(type(learned.objective)).get("compiles", False)
        surely_compiles = compiles and is_plain([learned.agents])
        chosen = choose_engine(
            key,
            Subject(self.update, learned.objective, [learned.agents], self.device, lambda: None),
            is_long=surely_compiles and num_rows >= _WORTH_COMPILING,
            has_begun=has_begun,
            tell=tell,
        )
        self.execute = chosen.by(self.update)
        return chosen.engine, list(chosen.notes)

    def update(self, learning_rate: Tensor, *columns: Tensor) -> Tensor:
        def loss_fn(net: Forward) -> tuple[Tensor, Tensor]:
            loss, told = net(*columns)
            return loss, told

        # The ratio compares with the policy that acted, so the network is in the same mode here.
        loss, norm, told = self.learner.step(loss_fn, learning_rate, in_train_mode=False)
        if self._has_statistics:
            with self._frozen_as_they_are():
                self.learner.update_statistics(*[columns[place] for place in self._look], norm=norm)
        return self._counted(loss, norm, told)
