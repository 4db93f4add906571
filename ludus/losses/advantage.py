"""How much better each step was than expected: generalised advantage estimation.

Shapes: T time, B envs.
"""

from __future__ import annotations

import torch
from torch import Tensor


def generalised_advantage(
    rewards_TB: Tensor,
    values_TB: Tensor,
    next_values_TB: Tensor,
    terminated_TB: Tensor,
    ends_TB: Tensor,
    *,
    gamma: float,
    lam: float,
) -> Tensor:
    """Return the advantage of each step, discounted by gamma and smoothed by lam.

    next_values_TB is the value of the state that each step led to, that of the last state of an episode
    included. A terminated step takes nothing from it; a truncated one does, yet like every end it takes
    nothing from the advantage of the step stored after it.
    """
    going_TB = (~terminated_TB).to(rewards_TB.dtype)
    deltas_TB = rewards_TB + gamma * next_values_TB * going_TB - values_TB
    keep_TB = gamma * lam * (~ends_TB).to(rewards_TB.dtype)
    advantages_TB = torch.empty_like(deltas_TB)
    running_B = torch.zeros_like(deltas_TB[0])
    for step in range(len(deltas_TB) - 1, -1, -1):
        running_B = deltas_TB[step] + keep_TB[step] * running_B
        advantages_TB[step] = running_B
    return advantages_TB
