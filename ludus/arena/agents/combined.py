"""CombinedAgents: all agents as one actor with an agent dimension, each with its own observation.

Shapes: A agents, C channels, R rounds, V symbols; `...` is any batch, flattened to N rows for the agents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional

from ludus.arena.agents.agent import Agent, AgentOutput, check_said, check_value
from ludus.arena.agents.body import Rows
from ludus.arena.agents.heads import ABSENT
from ludus.arena.libraries import (
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictBase,
    TensorDictModuleBase,
    skip_existing,
)
from ludus.arena.playing.distribution import TurnDistribution
from ludus.arena.protocol import NOTHING, ProtocolHandler
from ludus.arena.scenario import ObservationSizes
from ludus.core.errors import LudusError
from ludus.nn.engines.gate import HOOKS

AGENTS = "agents"
ACTION = (AGENTS, "action")
LOG_PROB = (AGENTS, "action_log_prob")
VALUE = (AGENTS, "value")
REWARD = (AGENTS, "reward")
DONE = (AGENTS, "done")
TERMINATED = (AGENTS, "terminated")
ADVANTAGE = (AGENTS, "advantage")
VALUE_TARGET = (AGENTS, "value_target")
LOGITS = {name: (AGENTS, name) for name in ("decision_logits", "message_logits")}
MASKS = {name: (AGENTS, name) for name in ("decision_mask", "message_mask")}

_BOTH = "policy_and_value"


class CombinedAgents(nn.Module):
    """Holds the agents by name, in the order of the protocol, and calls them on rows of a batch."""

    def __init__(
        self,
        agents: Mapping[str, Agent],
        handler: ProtocolHandler,
        data_names: Sequence[str],
        *,
        own: Mapping[str, ObservationSizes] = MappingProxyType({}),
    ) -> None:
        """`data_names` are the observed data: the labels are not among them.

        `own` gives, for agents that each have their own data (N, A, ...), the widths of these and the
        numbers of symbols; without it all agents share the same data and symbols.
        """
        super().__init__()
        # A shared body is named after the first member that holds it: the agent that owns it.
        owners = sorted(agents, key=lambda name: not getattr(agents[name], "has_own_body", True))
        self.members = nn.ModuleDict({name: agents[name] for name in owners})
        self.names = tuple(agents)
        self.data_names = tuple(data_names)
        self._own_of = [own[name] for name in agents] if own else []
        self.num_channels = len(handler.message_channel_names)
        visible_AC = handler.visibility(torch.device("cpu"))
        # A buffer, so that it moves to the device with the weights.
        self.register_buffer("visible_AC", visible_AC, persistent=False)
        self.sees_all = [bool(row.all()) for row in visible_AC]
        # The agents whose output shapes are unchecked: a trainer calls all of them before its run begins.
        self._unchecked = {method: {*self._all} for method in ("policy", "value", _BOTH)}
        self._first_said: tuple[str, int] | None = None

    def member(self, name: str) -> Agent:
        """Return the agent of this name."""
        found = self.members[name]
        assert isinstance(found, Agent)
        return found

    def rows_of(self, index: int, batch: TensorDictBase | Mapping[str, Tensor]) -> Rows:
        """Return this agent's observation of a batch of rows (N, ...): the data, and channels it may read."""
        rows = {name: self._own(index, name, batch[name]) for name in self.data_names}
        history_NRC = batch["message_history"]
        if not self.sees_all[index]:
            history_NRC = torch.where(self.visible_AC[index], history_NRC, NOTHING)  # type: ignore[index]
        return {**rows, "message_history": history_NRC, "round": batch["round"]}

    def _own(self, index: int, name: str, data: Tensor) -> Tensor:
        """Return this agent's own slice of some data."""
        return data[:, index, : self._own_of[index].shapes[name][0]] if self._own_of else data

    def _padded(self, index: int, message_NCV: Tensor) -> Tensor:
        """Return logits padded to the largest number of symbols; padding is never chosen."""
        if not self._own_of:
            return message_NCV
        most = max(own.num_symbols for own in self._own_of)
        return functional.pad(message_NCV, (0, most - message_NCV.shape[-1]), value=ABSENT)

    def policy(
        self, batch: TensorDictBase | Mapping[str, Tensor], *, only: Sequence[int] | None = None
    ) -> tuple[Tensor, Tensor]:
        """Return (N, A, 3) and (N, A, C, V) logits; zeros for agents that are not in `only`."""
        said = {
            index: self.member(name).policy(self.rows_of(index, batch))
            for index, name in enumerate(self.names)
            if only is None or index in only
        }
        if self._unchecked["policy"]:
            self._check("policy", said, {}, batch)
        return self._stacked([said[i].decision if i in said else None for i in self._all]), (
            self._stacked(
                [self._padded(i, said[i].message) if i in said else None for i in self._all]
            )
        )

    def value(self, batch: TensorDictBase | Mapping[str, Tensor]) -> Tensor:
        """Return (N, A, 1) the value of each agent."""
        each = [
            self.member(name).value(self.rows_of(i, batch)) for i, name in enumerate(self.names)
        ]
        if self._unchecked["value"]:
            self._check("value", {}, dict(enumerate(each)), batch)
        return torch.stack(each, 1).unsqueeze(-1)

    def policy_and_value(
        self, batch: TensorDictBase | Mapping[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the logits and the values, with one forward pass per body where policy and value
        share it."""
        both = [
            self.member(name).policy_and_value(self.rows_of(index, batch))
            for index, name in enumerate(self.names)
        ]
        if self._unchecked[_BOTH]:
            said = {index: one for index, (one, _) in enumerate(both)}
            values = {index: one for index, (_, one) in enumerate(both)}
            self._check(_BOTH, said, values, batch)
        decisions = torch.stack([said.decision for said, _ in both], 1)
        messages = torch.stack([self._padded(i, both[i][0].message) for i in self._all], 1)
        return decisions, messages, torch.stack([value for _, value in both], 1).unsqueeze(-1)

    def observe(self, batch: TensorDictBase | Mapping[str, Tensor], names: Collection[str]) -> None:
        """Update the statistics of these agents with rows, each with its own observation.

        Each also gets the mask `there` of rows in which it was present, where agents may leave.

        This comes after the updates on the rows: an update compares with the policy that acted, which used
        the earlier statistics.
        """
        key = (AGENTS, "there") if isinstance(batch, TensorDictBase) else f"{AGENTS}/there"
        there_NA: Tensor | None = batch.get(key, None)  # type: ignore[arg-type]
        for index, name in enumerate(self.names):
            if name in names:
                presence = {} if there_NA is None else {"there": there_NA[:, index]}
                self.member(name).observe({**self.rows_of(index, batch), **presence})

    @property
    def fresh(self) -> list[str]:
        """The agents that must observe something before they are first used."""
        return [name for name in self.names if not self.member(name).has_observed]

    def _check(
        self,
        method: str,
        said: Mapping[int, AgentOutput],
        values: Mapping[int, Tensor],
        batch: TensorDictBase | Mapping[str, Tensor],
    ) -> None:
        """Check once the shapes of each agent's outputs; raise LudusError where one is wrong."""
        rows = batch["round"].shape[0]
        for index in sorted(self._unchecked[method] & {*said, *values}):
            whose = f"agent '{self.names[index]}': {method}"
            own = self._own_of[index].num_symbols if self._own_of else None
            if index in said:
                symbols = check_said(
                    said[index], whose, rows=rows, channels=self.num_channels, symbols=own
                )
                self._compare(whose, symbols)
            if index in values:
                check_value(values[index], whose, rows=rows)
            self._unchecked[method].discard(index)

    def _compare(self, whose: str, symbols: int) -> None:
        """Raise LudusError where agents that share symbols return different numbers of them."""
        first, there = self._first_said = self._first_said or (whose, symbols)
        if symbols != there and not self._own_of:
            raise LudusError(
                f"{whose} returned the logits of {symbols} symbols, and {first} of {there}; return those of"
                " as many symbols as the scenario has, num_symbols of the Seen that an agent is built for"
            )

    @property
    def _all(self) -> range:
        return range(len(self.names))

    @staticmethod
    def _stacked(each: list[Tensor | None]) -> Tensor:
        like = next(one for one in each if one is not None)
        return torch.stack([torch.zeros_like(like) if one is None else one for one in each], 1)

    @contextlib.contextmanager
    def trained_as_they_are(self) -> Iterator[None]:
        """Preserve requires_grad of all parameters: TorchRL's estimators set all of them, or none."""
        before = [(one, one.requires_grad) for one in self.parameters()]
        try:
            yield
        finally:
            for one, is_trained in before:
                one.requires_grad_(is_trained)

    def rates(self) -> dict[str, dict[str, float]]:
        """Return the factor of the learning rate of each part of each agent."""
        return {name: self.member(name).rates() for name in self.names}


class _OnRows(TensorDictModuleBase):
    """Calls a function on a TensorDict of any batch, as rows, and writes what it returns."""

    def __init__(self, agents: CombinedAgents, out_keys: list[tuple[str, str]]) -> None:
        super().__init__()
        self.agents = agents
        self.in_keys = [*agents.data_names, "message_history", "round"]
        self.out_keys = list(out_keys)

    def _written(
        self, td: TensorDictBase, ask: Callable[[TensorDictBase], Sequence[Tensor]]
    ) -> TensorDictBase:
        shape = td.batch_size
        rows = td.select(*self.in_keys).reshape(-1) if len(shape) != 1 else td
        for key, value in zip(self.out_keys, ask(rows), strict=True):
            td.set(key, value.reshape(*shape, *value.shape[1:]))
        return td


class Speaking(_OnRows):
    """Writes the logits of all agents."""

    def __init__(self, agents: CombinedAgents) -> None:
        super().__init__(agents, [*LOGITS.values()])

    def forward(self, td: TensorDictBase) -> TensorDictBase:
        """Write the logits into the TensorDict."""
        return self._written(td, self.agents.policy)


class Valuing(_OnRows):
    """Writes the values of all agents; within TorchRL's `set_skip_existing`, unless they exist."""

    def __init__(self, agents: CombinedAgents) -> None:
        super().__init__(agents, [VALUE])

    def forward(self, td: TensorDictBase) -> TensorDictBase:
        """Write the values into the TensorDict."""
        if skip_existing() and VALUE in td.keys(include_nested=True):
            return td
        return self._written(td, lambda rows: [self.agents.value(rows)])


def is_plain_look(critic: nn.Module) -> bool:
    """Return whether a critic only writes the agents' values, so that one pass is enough."""
    return type(critic) is Valuing and not any(getattr(critic, name) for name in HOOKS)


def make_actor(agents: CombinedAgents) -> ProbabilisticTensorDictSequential:
    """Return the agents as an actor that TorchRL's losses and collectors can use."""
    return ProbabilisticTensorDictSequential(
        Speaking(agents),
        ProbabilisticTensorDictModule(
            in_keys={**LOGITS, **MASKS},
            out_keys=[ACTION],
            distribution_class=TurnDistribution,
            return_log_prob=True,
            log_prob_key=LOG_PROB,
        ),
    )


def make_critic(agents: CombinedAgents) -> Valuing:
    """Return the agents as a value operator."""
    return Valuing(agents)
