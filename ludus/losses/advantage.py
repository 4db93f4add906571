"""Generalised advantage estimation (GAE).

Shapes: T time, B envs.
"""

from __future__ import annotations

import numpy as np
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

    next_values_TB is the value of the state that each step led to, including the final state of an episode. A
    terminated step does not bootstrap from it; a truncated one does, but like every end it takes nothing from
    the advantage of the step stored after it. A terminated step has also ended: ends_TB must be true wherever
    terminated_TB is. No gradient flows through.
    """
    with torch.no_grad():
        going_TB = (~terminated_TB).to(rewards_TB.dtype)
        deltas_TB = rewards_TB + gamma * next_values_TB * going_TB - values_TB
        keep_TB = gamma * lam * (~ends_TB).to(rewards_TB.dtype)
        if deltas_TB.device.type == "cpu" and deltas_TB.dtype in (torch.float32, torch.float64):
            _sum_backwards_by_numpy(deltas_TB, keep_TB)
        else:
            _sum_backwards(deltas_TB, keep_TB)
    return deltas_TB


def _sum_backwards(deltas_TB: Tensor, keep_TB: Tensor) -> None:
    """Add to each row, in place, keep_TB times the row after it."""
    for step in range(len(deltas_TB) - 2, -1, -1):
        deltas_TB[step] += keep_TB[step] * deltas_TB[step + 1]


def _sum_backwards_by_numpy(deltas_TB: Tensor, keep_TB: Tensor) -> None:
    """Do the same through NumPy's view of the memory, whose small sums cost a tenth of torch's."""
    rows, keeps = list(deltas_TB.numpy()), list(keep_TB.numpy())
    # As in torch, non-finite values raise no warning: the check of the loss reports them.
    with np.errstate(all="ignore"):
        for step in range(len(rows) - 2, -1, -1):
            kept_B = keeps[step]
            kept_B *= rows[step + 1]
            rows[step] += kept_B
