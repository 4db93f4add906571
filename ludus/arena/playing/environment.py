"""Environments: a batch of episodes of a protocol about data of a scenario, on tensors alone.

An iteration plays one episode in each env, all in the same round; an episode that has ended waits, masked,
for the others. The data and the seed of each episode follow from the seed of the run and the number of the
iteration, so an environment has no state to save.

Shapes: B envs, A agents, C channels, R rounds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from ludus.arena.libraries import TensorDictBase
from ludus.arena.playing.dataset import ArenaDataset
from ludus.arena.protocol import NOTHING, ProtocolHandler
from ludus.seeds import derive, generator


@dataclass(frozen=True)
class ProtocolMoment:
    """The state of the episodes before a step."""

    step: int
    seen: dict[str, Tensor]
    """The observations of the agents, (B, ...): the data, `message_history`, `round`."""
    kept: dict[str, Tensor]
    """The part of it stored for each step, (B, ...); the data are looked up by their index."""
    decision_mask: Tensor
    """(B, A) whose decision counts and is not forced."""
    message_mask: Tensor
    """(B, A, C) who speaks in which channel."""
    acting: tuple[int, ...] | None
    """The agents that may be active in this step; None: any."""
    over: Tensor
    """(B,) which episodes have ended before."""
    hidden: dict[str, Tensor]
    """Values hidden from all agents, such as the labels."""
    there: Tensor | None = None
    """(B, A) which agents are present; None: all, until the episode is over."""


class Stepped(NamedTuple):
    """The result of a step."""

    moment: ProtocolMoment
    rewards: Tensor
    """(B, A)."""
    done: Tensor
    """(B,) whether the episode ends here, or (B, A) whether it does for each agent."""
    terminated: Tensor
    """As `done`: whether it terminates; a truncated episode has a value beyond its end."""
    successor: dict[str, Tensor]
    """The observations after the step, stored as `next`; where an env resets, not the next moment. For
    episodes of a protocol also `verdict` (B,), the decision that counted in the step.
    """


class Environment(ABC):
    """Base class of environments for rollouts."""

    agent_names: tuple[str, ...]
    num_envs: int
    num_steps: int
    """The number of steps of a rollout."""
    ends_in_time: ClassVar[bool] = False
    """Whether every episode begins with a rollout and terminates within it; set in each class, and not
    inherited.
    """

    @abstractmethod
    def begin(self, iteration: int) -> ProtocolMoment:
        """Return the first moment of an iteration's episodes."""

    @abstractmethod
    def step(self, moment: ProtocolMoment, action_BAK: Tensor) -> Stepped:
        """Return the result of the actions of all agents."""

    def is_over(self, moment: ProtocolMoment) -> bool:
        """Return whether all episodes are over, where the host knows without waiting for the device."""
        return False

    def statistics(self, rollouts: TensorDictBase) -> dict[str, Tensor]:
        """Return further statistics of rollouts (B, T) by other kinds of env, each as a sum and
        its weight."""
        return {}

    def looked_up(self, index: Tensor) -> dict[str, Tensor]:
        """Return the observations that rollouts do not store, at these indices of the data."""
        return {}

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """Release resources other than tensors, such as envs. It may be called twice."""

    def filled(self, rollouts: TensorDictBase) -> TensorDictBase:
        """Return rollouts, or rows of them, with all observations: those not stored are looked up."""
        found, following = rollouts.copy(), rollouts.get("next", None)
        following = None if following is None else following.copy()
        for name, tensor in self.looked_up(rollouts["index"]).items():
            found.set(name, tensor)
            if following is not None:
                following.set(name, tensor)
        return found if following is None else found.set("next", following)


class MessageEnvironment(Environment):
    """Episodes of a protocol about the data of a dataset."""

    ends_in_time = True

    def __init__(
        self,
        dataset: ArenaDataset,
        handler: ProtocolHandler,
        *,
        num_envs: int,
        seed: int,
        name: str,
        device: torch.device,
    ) -> None:
        self.dataset = dataset.to(device)
        self.handler = handler
        self.agent_names = handler.agent_names
        self.num_envs = num_envs
        self.num_steps = handler.max_message_rounds
        self._seed, self._name, self.device = seed, name, device
        self._acting = [handler.acting(index) for index in range(self.num_steps)]

    def data_index(self, iteration: int) -> Tensor:
        """Return (B,) the data of an iteration's episodes: one shuffled pass after another."""
        size, first = len(self.dataset), iteration * self.num_envs
        places = torch.arange(first, first + self.num_envs)
        passes = range(first // size, (first + self.num_envs - 1) // size + 1)
        orders = [self._order(number) for number in passes]
        return torch.cat(orders)[places - passes[0] * size]

    def _order(self, number: int) -> Tensor:
        source = generator(self._seed, f"arena/{self._name}/order", number)
        return torch.randperm(len(self.dataset), generator=source)

    def begin(self, iteration: int) -> ProtocolMoment:
        """Return the first moment of an iteration's episodes."""
        return self.begin_with(self.data_index(iteration), iteration)

    def begin_with(self, index_B: Tensor, iteration: int) -> ProtocolMoment:
        """Return the first moment of episodes about these data."""
        source = torch.Generator().manual_seed(
            derive(self._seed, f"arena/{self._name}/episode", iteration)
        )
        seed_B = torch.randint(2**31, (len(index_B),), generator=source).to(self.device)
        index_B = index_B.to(self.device)
        channels = len(self.handler.message_channel_names)
        history_BRC = torch.full(
            (len(index_B), self.num_steps, channels), NOTHING, device=self.device
        )
        hidden = {"y": self.dataset.y[index_B], "seed": seed_B}
        over_B = torch.zeros(len(index_B), dtype=torch.bool, device=self.device)
        return self._moment(0, self.dataset.rows(index_B), index_B, history_BRC, over_B, hidden)

    def _moment(
        self,
        index: int,
        data: dict[str, Tensor],
        index_B: Tensor,
        history_BRC: Tensor,
        over_B: Tensor,
        hidden: dict[str, Tensor],
    ) -> ProtocolMoment:
        kept = {
            "index": index_B,
            "message_history": history_BRC,
            "round": torch.full_like(index_B, index),
        }
        seed_B, is_last = hidden["seed"], index >= self.num_steps
        at = min(index, self.num_steps - 1)
        message_BAC = self.handler.speakers(at, seed_B) & ~over_B[:, None, None]
        decision_BA = self.handler.deciders(at, seed_B) & ~over_B[:, None]
        if self.handler.rules.force_guess is not None:
            # A forced decision is not the agent's: it is rewarded for it, but must not learn from it.
            decision_BA = torch.zeros_like(decision_BA)
        seen = {**data, "message_history": history_BRC, "round": kept["round"]}
        acting = () if is_last else self._acting[at]
        return ProtocolMoment(index, seen, kept, decision_BA, message_BAC, acting, over_B, hidden)

    def step(self, moment: ProtocolMoment, action_BAK: Tensor) -> Stepped:
        """Return the result of the actions of all agents."""
        handler, hidden = self.handler, moment.hidden
        outcome = handler.step(moment.step, action_BAK, hidden["y"], moment.over, hidden["seed"])
        history_BRC = self._heard(moment, action_BAK[..., 1:])
        over_B = moment.over | outcome.terminated
        names = self.dataset.data
        data = {name: moment.seen[name] for name in names}
        following = self._moment(
            moment.step + 1, data, moment.kept["index"], history_BRC, over_B, hidden
        )
        ends_B = outcome.terminated
        successor = {**following.kept, "verdict": outcome.verdict}
        return Stepped(following, outcome.rewards, ends_B, ends_B, successor)

    def _heard(self, moment: ProtocolMoment, said_BAC: Tensor) -> Tensor:
        """Return the message history with this round's messages."""
        mask_BAC = moment.message_mask
        # At most one agent speaks in a channel, so the maximum is its symbol.
        heard_BC = torch.where(mask_BAC, said_BAC, NOTHING).amax(1)
        history_BRC = moment.seen["message_history"].clone()
        history_BRC[:, moment.step] = heard_BC
        return history_BRC

    def looked_up(self, index: Tensor) -> dict[str, Tensor]:
        """Return the data at these indices."""
        return self.dataset.rows(index)
