"""The answers of an iteration as data of policy gradients: tokens, log-probabilities, advantages.

Shapes: B episodes, T rounds, A agents, L tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ludus.arena.protocol import ProtocolHandler
from ludus.text.chat import ChatMessage
from ludus.text.expert_iteration.selection import prompt_of
from ludus.text.nested import NestedArrayDict
from ludus.text.training_client import TrainingDatum, policy_gradient_datum

Array = np.ndarray


def advantages(reward_B: Array, group_B: Array, *, baseline: str, normalise: bool) -> Array:
    """Return the reward of each episode less the mean of those it is compared with.

    Where all of these are equal the advantage is 0, whatever it is divided by.
    """
    group_B = np.zeros_like(group_B) if baseline == "iteration" else group_B
    found_B = np.zeros(len(reward_B))
    for group in np.unique(group_B):
        own = group_B == group
        above = reward_B[own] - reward_B[own].mean()
        deviation = above.std()
        if deviation > 1e-9:
            found_B[own] = above / deviation if normalise else above
    return found_B


def datums(
    rollouts: NestedArrayDict,
    handler: ProtocolHandler,
    agents: Sequence[str],
    encode: Callable[[Sequence[ChatMessage]], tuple[int, ...]],
    *,
    baseline: str,
    normalise: bool,
) -> list[TrainingDatum]:
    """Return one datum for each answer of these agents that has an advantage."""
    found: list[TrainingDatum] = []
    group_B = rollouts["group"][:, 0]
    for agent in agents:
        which = handler.agent_names.index(agent)
        reward_B = rollouts["agents", "reward"][..., which].sum(1)
        advantage_B = advantages(reward_B, group_B, baseline=baseline, normalise=normalise)
        own = {
            name: rollouts["agents", name][:, :, which]
            for name in ("active", "prompt", "token_ids", "logprobs")
        }
        for b, t in zip(*np.nonzero(own["active"] & (advantage_B != 0)[:, None]), strict=True):
            ids_L = own["token_ids"][b, t]
            length = int((ids_L >= 0).sum())
            if length:
                found.append(
                    policy_gradient_datum(
                        encode(prompt_of(str(own["prompt"][b, t]))),
                        ids_L[:length].tolist(),
                        own["logprobs"][b, t, :length].tolist(),
                        advantage=float(advantage_B[b]),
                    )
                )
    return found
