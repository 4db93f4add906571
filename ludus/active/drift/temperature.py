"""Temperature scaling: divide the logits by one number so that confidence fits accuracy.

It changes no predicted class. It is fitted on validation data, which the weights were not fitted to: on
training data a model is nearly always right, and the temperature would make it more confident still.

Shapes: N examples, C classes.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from ludus.active.drift.arrays import log_probs, targets_in
from ludus.active.selection.arrays import Array

LOWEST, HIGHEST = 0.01, 100.0
"""Bounds of the temperature, which would diverge if all predictions were right, or all alike."""


def fit_temperature(validation_logits: Array, targets: Array) -> float:
    """Return the temperature with the lowest negative log likelihood on validation examples.

    By LBFGS in float64, on the inverse of the temperature; of (N, C) logits or log probabilities.
    """
    logits_NC = log_probs(validation_logits)
    # A log probability of -inf is made finite, so that its gradient is finite.
    logits_NC = logits_NC.clamp(min=-1e4)
    targets_N = targets_in(targets, logits_NC)
    # The loss is convex in the inverse temperature, so the search converges from any start.
    inverse = torch.ones((), dtype=torch.float64, device=logits_NC.device, requires_grad=True)
    search = torch.optim.LBFGS(
        [inverse], max_iter=200, tolerance_grad=1e-12, tolerance_change=1e-14,
        line_search_fn="strong_wolfe",
    )  # fmt: skip

    def loss() -> Tensor:
        search.zero_grad()
        nll = functional.cross_entropy(logits_NC * inverse, targets_N)
        nll.backward()
        return nll

    with torch.enable_grad():
        search.step(loss)
    return 1 / min(max(float(inverse.detach()), 1 / HIGHEST), 1 / LOWEST)
