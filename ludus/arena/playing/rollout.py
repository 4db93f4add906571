"""Rollouts of an iteration: for each step a batched forward pass of the agents that may be active.

The result is a TensorDict of B envs by T steps, in the layout of TorchRL's losses and estimators.

Shapes: B envs, T steps, A agents, C channels, K = 1 + C numbers of an action.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ludus.arena.agents.combined import AGENTS, CombinedAgents
from ludus.arena.libraries import TensorDict, TensorDictBase
from ludus.arena.playing.distribution import TurnDistribution
from ludus.arena.playing.environment import Environment, ProtocolMoment
from ludus.core.errors import Interrupted

Choose = Callable[[TurnDistribution], Tensor]


def sampled(seed: int, device: torch.device) -> Choose:
    """Return the choice that samples actions, by a generator with this seed."""
    source = torch.Generator(device).manual_seed(seed)
    return lambda distribution: distribution.drawn(source)


def roll_out(
    agents: CombinedAgents,
    environment: Environment,
    moment: ProtocolMoment,
    choose: Choose,
    *,
    num_steps: int | None = None,
    is_interrupted: Callable[[], bool] = lambda: False,
) -> TensorDict:
    """Return the (B, T) rollout from this moment on; `choose` samples the actions, or takes the most
    likely.

    `num_steps` is by default that of the environment. Nothing waits for the device. Steps after all episodes
    are over are zeros, and masked. It raises Interrupted when asked to stop.
    """
    num_steps = environment.num_steps if num_steps is None else num_steps
    steps: list[dict[str, Tensor]] = []
    afters: list[dict[str, Tensor]] = []
    with torch.no_grad():
        for _ in range(num_steps):
            if is_interrupted():
                raise Interrupted
            if environment.is_over(moment):
                break
            decisions, messages = agents.policy(moment.seen, only=moment.acting)
            masks = moment.decision_mask, moment.message_mask
            distribution = TurnDistribution(decisions, messages, *masks)
            action_BAK = choose(distribution)
            stepped = environment.step(moment, action_BAK)
            there_BA = (~moment.over)[:, None].expand(action_BAK.shape[:2])
            steps.append(
                {
                    **moment.kept,
                    **moment.hidden,
                    "mask": ~moment.over,
                    "decision_logits": decisions,
                    "message_logits": messages,
                    "decision_mask": masks[0],
                    "message_mask": masks[1],
                    "action": action_BAK,
                    "action_log_prob": distribution.log_prob(action_BAK),
                    "entropy": distribution.entropy(),
                    "there": there_BA if moment.there is None else moment.there,
                }
            )
            ended_BA1 = _expanded(stepped.done, moment.over, stepped.rewards)
            terminated_BA1 = _expanded(stepped.terminated, moment.over, stepped.rewards)
            afters.append(
                {
                    **stepped.successor,
                    "reward": stepped.rewards.unsqueeze(-1),
                    "done": ended_BA1,
                    "terminated": terminated_BA1,
                }
            )
            moment = stepped.moment
    return _stacked(steps, num_steps).set("next", _stacked(afters, num_steps))


_OF_AGENTS = (
    "decision_logits", "message_logits", "decision_mask", "message_mask", "action",
    "action_log_prob", "entropy", "there", "reward", "done", "terminated",
)  # fmt: skip


def _expanded(ended: Tensor, over_B: Tensor, rewards_BA: Tensor) -> Tensor:
    """Return (B, A, 1) where an episode ends or was over, for each agent."""
    ended_BX = ended.reshape(len(over_B), -1) | over_B[:, None]
    return ended_BX.expand_as(rewards_BA).unsqueeze(-1)


def _stacked(steps: Sequence[dict[str, Tensor]], num_steps: int) -> TensorDict:
    # Rollouts that end early are padded to the same length, so that they can be concatenated.
    blank = {name: torch.zeros_like(tensor) for name, tensor in steps[0].items()}
    steps = [*steps, *[blank] * (num_steps - len(steps))]
    columns = {name: torch.stack([step[name] for step in steps], 1) for name in steps[0]}
    batch = columns["action" if "action" in columns else "reward"].shape[:3]
    own = {name: columns.pop(name) for name in _OF_AGENTS if name in columns}
    td = TensorDict(columns, batch_size=batch[:2])
    td.set(AGENTS, TensorDict(own, batch_size=batch))
    return td


def rows_of(rollouts: TensorDictBase) -> TensorDictBase:
    """Return the steps of all envs as rows (B x T), without `next`, which no loss reads."""
    return rollouts.exclude("next").reshape(-1)
