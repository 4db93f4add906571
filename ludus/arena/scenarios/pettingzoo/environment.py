"""ParallelEnvironment: several parallel envs as an Environment for trainers.

Every iteration begins with new episodes, whose seeds follow from the seed of the run, the iteration, the
env and the number of the episode in it; so envs have no state to save. Envs compute on the host: each step
waits once for the actions.

Shapes: B envs, T steps, A agents, O numbers of an observation, K = 2 numbers of an action.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from ludus.arena.libraries import TensorDictBase
from ludus.arena.playing.environment import Environment, ProtocolMoment, Stepped
from ludus.arena.playing.parallel_env import AnyParallelEnv
from ludus.arena.scenarios.pettingzoo.slot import Slot
from ludus.arena.scenarios.pettingzoo.spec import ParallelSpec
from ludus.core.errors import LudusError
from ludus.seeds import derive

OBSERVATION = "observation"


class ParallelEnvironment(Environment):
    """Steps all envs; where one ends, it is reset, or waits for the others where each plays once."""

    def __init__(
        self,
        make: Callable[[], AnyParallelEnv],
        spec: ParallelSpec,
        *,
        num_envs: int,
        num_steps: int | None,
        max_episode_steps: int,
        seed: int,
        name: str,
        device: torch.device,
    ) -> None:
        """`num_steps` is the number of steps of each env, with resets; None: one episode of each."""
        self.spec, self.agent_names = spec, spec.agent_names
        self.num_envs = num_envs
        self.resets_envs = num_steps is not None
        self.num_steps = max_episode_steps if num_steps is None else num_steps
        self._seed, self._name, self._device = seed, name, device
        self._make, self._limit = make, max_episode_steps
        self._slots = self._made()
        # An observation fills its row from the left; agents differ in their sizes.
        self._shape = num_envs, len(spec.agent_names), max(spec.num_numbers)
        # There are no messages, so there is no history; the index is that of the env.
        self._still = {
            "message_history": torch.zeros(num_envs, 0, 1, dtype=torch.int64, device=device),
            "round": torch.zeros(num_envs, dtype=torch.int64, device=device),
            "index": torch.arange(num_envs, device=device),
        }
        self._nobody = torch.zeros(self._shape[:2], dtype=torch.bool, device=device)

    def _made(self) -> list[Slot]:
        return [
            Slot(self._make(), self.spec, index, limit=self._limit)
            for index in range(self.num_envs)
        ]

    def begin(self, iteration: int) -> ProtocolMoment:
        """Return the first moment of an iteration's episodes; envs that were closed are made again."""
        self._slots = self._slots or self._made()
        seen_BAO = np.zeros(self._shape, np.float32)
        for index, slot in enumerate(self._slots):
            self._begin(slot, iteration, 0, seen_BAO[index])
        return self._moment(0, seen_BAO)

    def _begin(self, slot: Slot, iteration: int, episode: int, seen_AO: np.ndarray) -> None:
        """Begin an episode of an env, and write the observations."""
        name = f"arena/{self._name}/env {slot.index}/episode {episode}"
        seed = derive(self._seed, name, iteration) % 2**31
        slot.begin(seed, iteration, episode, seen_AO)

    def _moment(self, step: int, seen_BAO: np.ndarray) -> ProtocolMoment:
        seen = self._seen(seen_BAO)
        acts_BA = torch.from_numpy(np.stack([slot.is_there_A for slot in self._slots]))
        acts_BA = acts_BA.to(self._device)
        return ProtocolMoment(
            step=step,
            seen=seen,
            kept=seen,
            decision_mask=self._nobody,
            message_mask=acts_BA.unsqueeze(-1),
            acting=None,
            over=~acts_BA.any(-1),
            hidden={},
            there=acts_BA,
        )

    def _seen(self, seen_BAO: np.ndarray) -> dict[str, Tensor]:
        return {OBSERVATION: torch.from_numpy(seen_BAO).to(self._device), **self._still}

    def step(self, moment: ProtocolMoment, action_BAK: Tensor) -> Stepped:
        """Return the result of the actions of all agents."""
        B, A, _ = self._shape
        after_BAO, next_BAO = np.zeros(self._shape, np.float32), np.zeros(self._shape, np.float32)
        rewards_BA = np.zeros((B, A), np.float32)
        ended_BA = np.zeros((2, B, A), bool)
        for index, (slot, chosen_A) in enumerate(
            zip(self._slots, action_BAK[..., 1].tolist(), strict=True)
        ):
            if slot.has_ended():
                continue
            own = after_BAO[index]
            slot.step(chosen_A, own, rewards_BA[index], ended_BA[:, index])
            next_BAO[index, slot.is_there_A] = own[slot.is_there_A]
            if self.resets_envs and slot.has_ended():
                self._begin(slot, slot.iteration, slot.episode + 1, next_BAO[index])
        device = self._device
        done_BA, terminated_BA = torch.from_numpy(ended_BA).to(device).unbind(0)
        following = self._moment(moment.step + 1, next_BAO)
        rewards = torch.from_numpy(rewards_BA).to(device)
        return Stepped(following, rewards, done_BA, terminated_BA, self._seen(after_BAO))

    def is_over(self, moment: ProtocolMoment) -> bool:
        """Return whether every env has played its episode."""
        return all(slot.has_ended() for slot in self._slots)

    def close(self) -> None:
        """Close every env, once; raise the first error after all were closed."""
        slots, self._slots = self._slots, []
        errors = []
        for slot in slots:
            try:
                slot.close()
            except LudusError as error:
                errors.append(error)
        if errors:
            raise errors[0]

    def statistics(self, rollouts: TensorDictBase) -> dict[str, Tensor]:
        """Return the return per episode of each agent, their mean, and the number of episodes.

        An episode cut short by the end of the iteration counts as one. An agent that left early has no
        rewards from then on.
        """
        gained_A = rollouts["next", "agents", "reward"].squeeze(-1).double().sum((0, 1))
        done_BT = rollouts["next", "agents", "done"].squeeze(-1).all(-1)
        # One begins with each env, and one after each end except those of the last step.
        after_BT = done_BT[:, :-1] & rollouts["mask"][:, 1:]
        count = len(done_BT) + after_BT.double().sum()
        each = zip(self.agent_names, gained_A, strict=True)
        found = {f"{name}/return": torch.stack([gained, count]) for name, gained in each}
        found["return"] = torch.stack([gained_A.mean(), count])
        found["episodes"] = torch.stack([count, torch.ones_like(count)])
        return found
