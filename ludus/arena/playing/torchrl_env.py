"""ArenaEnv: a protocol as a TorchRL env, for its collectors and other code built on them.

Ludus's own trainers use `roll_out`, which costs a batched forward pass for each round and little else. This
is the same environment for loops written with TorchRL.

Shapes: B envs, A agents, C channels.
"""

from __future__ import annotations

from typing import Any

import torch

from ludus.arena.agents.combined import AGENTS
from ludus.arena.libraries import (
    Binary,
    Bounded,
    Composite,
    EnvBase,
    TensorDict,
    TensorDictBase,
    Unbounded,
)
from ludus.arena.playing.environment import MessageEnvironment, ProtocolMoment
from ludus.core.errors import LudusError


class ArenaEnv(EnvBase):
    """Plays the episodes of a MessageEnvironment, all of its envs in the same round; each reset begins the
    episodes of the next iteration.

    An episode is over for its agents where `("agents", "done")` is true; the envs are reset together, when
    `done` is. Values hidden from all agents, such as the labels, are under `hidden`; channel visibility is
    enforced by `ludus.make_actor`, and by no other actor.
    """

    def __init__(self, environment: MessageEnvironment, num_symbols: int) -> None:
        size = torch.Size([environment.num_envs])
        super().__init__(device=environment.device, batch_size=size)
        self.environment = environment
        self._iteration = 0
        self._moment: ProtocolMoment | None = None
        self._make_specs(num_symbols)

    def _make_specs(self, num_symbols: int) -> None:
        env, B = self.environment, self.environment.num_envs
        A, C = len(env.agent_names), len(env.handler.message_channel_names)
        each = torch.Size([B, A])
        first = env.begin(0)
        seen, hidden = (
            {
                name: Unbounded(shape=tensor.shape, dtype=tensor.dtype, device=self.device)
                for name, tensor in found.items()
            }
            for found in (first.seen, first.hidden)
        )
        apart = Composite(**hidden, shape=(B,), device=self.device)
        masks = Composite(
            decision_mask=Binary(shape=each, dtype=torch.bool, device=self.device),
            message_mask=Binary(shape=(B, A, C), dtype=torch.bool, device=self.device),
            shape=each,
            device=self.device,
        )
        mask = Binary(shape=(B,), dtype=torch.bool, device=self.device)
        self.observation_spec = Composite(
            **seen, mask=mask, agents=masks, hidden=apart, shape=(B,), device=self.device
        )
        high = torch.tensor([3, *[num_symbols] * C]).expand(B, A, 1 + C) - 1
        action = Bounded(0, high, shape=(B, A, 1 + C), dtype=torch.int64, device=self.device)
        self.action_spec = self._of_agents(action=action)
        reward = Unbounded(shape=(B, A, 1), device=self.device)
        self.reward_spec = self._of_agents(reward=reward)
        ends = Binary(shape=(B, 1), dtype=torch.bool, device=self.device)
        own = Binary(shape=(B, A, 1), dtype=torch.bool, device=self.device)
        self.done_spec = Composite(
            done=ends,
            terminated=ends.clone(),
            agents=Composite(done=own, terminated=own.clone(), shape=each, device=self.device),
            shape=(B,),
            device=self.device,
        )

    def _of_agents(self, **specs: object) -> Composite:
        B, A = self.environment.num_envs, len(self.environment.agent_names)
        own = Composite(**specs, shape=(B, A), device=self.device)
        return Composite(agents=own, shape=(B,), device=self.device)

    def _seen(self, moment: ProtocolMoment) -> dict[str, Any]:
        masks = TensorDict(
            {"decision_mask": moment.decision_mask, "message_mask": moment.message_mask},
            batch_size=[*self.batch_size, len(self.environment.agent_names)],
        )
        hidden = TensorDict(dict(moment.hidden), batch_size=self.batch_size)
        return {**moment.seen, "hidden": hidden, "mask": ~moment.over, AGENTS: masks}

    def _reset(self, tensordict: TensorDictBase | None = None, **_: object) -> TensorDict:
        self._moment = self.environment.begin(self._iteration)
        self._iteration += 1
        return TensorDict(self._seen(self._moment), batch_size=self.batch_size)

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        if self._moment is None:
            raise LudusError("ArenaEnv was stepped before it was reset; call reset() first")
        stepped = self.environment.step(self._moment, tensordict["agents", "action"])
        self._moment = stepped.moment
        # An episode that is over waits for the others: all are reset together, after the last round.
        is_last = self._moment.step >= self.environment.num_steps
        ends = torch.full((*self.batch_size, 1), is_last, device=self.device)
        found = self._seen(stepped.moment)
        over_BA1 = stepped.moment.over[:, None, None].expand(*stepped.rewards.shape, 1)
        found[AGENTS].update(
            {"reward": stepped.rewards.unsqueeze(-1), "done": over_BA1, "terminated": over_BA1}
        )
        return TensorDict(
            {**found, "done": ends, "terminated": ends.clone()}, batch_size=self.batch_size
        )

    def _set_seed(self, seed: int | None) -> None:
        """Restart from the first iteration: all draws follow from the seed of the run."""
        self._iteration = 0
