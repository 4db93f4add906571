"""The quantile Huber loss of implicit quantile networks.

Shapes: B batch, N quantiles of the prediction, M quantiles of the target.
"""

from __future__ import annotations

import torch
from torch import Tensor


def quantile_huber_loss(
    predictions_BN: Tensor,
    fractions_BN: Tensor,
    targets_BM: Tensor,
    weights_B: Tensor | None = None,
    *,
    kappa: float = 1.0,
) -> tuple[Tensor, Tensor]:
    """Return the mean quantile Huber loss, and the absolute mean TD error of each example as a priority.

    Every predicted quantile is compared with every target quantile; an underestimate is weighted by its
    fraction, an overestimate by one minus it. Targets are detached. The loss is the mean over targets, summed
    over predictions, then the mean over the batch, each example times its importance weight if given.
    """
    errors_BNM = targets_BM.detach().unsqueeze(1) - predictions_BN.unsqueeze(2)
    sizes_BNM = errors_BNM.abs()
    huber_BNM = torch.where(
        sizes_BNM <= kappa, 0.5 * errors_BNM.square(), kappa * (sizes_BNM - 0.5 * kappa)
    )
    tilt_BNM = (fractions_BN.unsqueeze(2) - (errors_BNM.detach() < 0).to(errors_BNM.dtype)).abs()
    losses_B = (tilt_BNM * huber_BNM / kappa).mean(2).sum(1)
    loss = (losses_B if weights_B is None else losses_B * weights_B).mean()
    return loss, errors_BNM.detach().mean((1, 2)).abs()
