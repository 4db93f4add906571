"""Calibration of a classifier: ECE, MCE, the reliability curve of confidence and accuracy, and temperature.

Confidence is the largest probability of an example. Of K bins, bin k holds the confidences c with
k/K < c <= (k+1)/K; the first holds 0 too. All in float64, over all examples.

Temperature scaling divides the logits by one number so that confidence fits accuracy. It changes no predicted
class. It is fitted on validation data, which the weights were not fitted to: on training data a model is
nearly always right, and the temperature would make it more confident still.

Shapes: N examples, C classes, K bins.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from ludus.active.arrays import Array, log_probs, targets_in
from ludus.core.errors import LudusError

LOWEST, HIGHEST = 0.01, 100.0
"""Bounds of the temperature, which would diverge if all predictions were right, or all alike."""


@dataclass(frozen=True)
class Reliability:
    """Confidence and accuracy by bin; NaN in an empty bin."""

    counts: Tensor
    """(K,) the number of examples in each bin."""
    confidence: Tensor
    """(K,) their mean confidence."""
    accuracy: Tensor
    """(K,) their accuracy."""

    @property
    def ece(self) -> float:
        """The expected calibration error: the mean gap of the bins, weighted by their examples."""
        held = self.counts > 0
        return float((self.counts[held] * self._gaps[held]).sum() / self.counts.sum())

    @property
    def mce(self) -> float:
        """The maximum calibration error: the largest gap of a bin that holds an example."""
        return float(self._gaps[self.counts > 0].max())

    @property
    def _gaps(self) -> Tensor:
        return (self.confidence - self.accuracy).abs()

    def rows(self) -> list[dict[str, float | int | None]]:
        """Return a row for each bin: its bounds, count, confidence and accuracy; None in an empty bin."""
        bins = len(self.counts)
        found: list[dict[str, float | int | None]] = []
        for place in range(bins):
            is_held = bool(self.counts[place] > 0)
            found.append(
                {
                    "above": place / bins,
                    "to": (place + 1) / bins,
                    "examples": int(self.counts[place]),
                    "confidence": float(self.confidence[place]) if is_held else None,
                    "accuracy": float(self.accuracy[place]) if is_held else None,
                }
            )
        return found


def reliability(logits: Array, targets: Array, *, bins: int = 10) -> Reliability:
    """Return confidence and accuracy by bin, of (N, C) logits or log probabilities and (N,) classes."""
    if bins < 1:
        raise LudusError(f"bins is {bins}; use 1 or more")
    log_probs_NC = log_probs(logits)
    targets_N = targets_in(targets, log_probs_NC)
    confidence_N, said_N = log_probs_NC.exp().max(1)
    edges = torch.arange(1, bins, dtype=torch.float64, device=confidence_N.device) / bins
    bin_N = torch.bucketize(confidence_N, edges)
    counts_K = torch.bincount(bin_N, minlength=bins)
    zeros_K = confidence_N.new_zeros(bins)
    sure_K = zeros_K.index_add(0, bin_N, confidence_N)
    right_K = zeros_K.index_add(0, bin_N, (said_N == targets_N).to(torch.float64))
    # 0 / 0 is NaN: an empty bin has neither confidence nor accuracy.
    return Reliability(counts_K, sure_K / counts_K, right_K / counts_K)


def ece(logits: Array, targets: Array, *, bins: int = 10) -> float:
    """Return the expected calibration error."""
    return reliability(logits, targets, bins=bins).ece


def mce(logits: Array, targets: Array, *, bins: int = 10) -> float:
    """Return the maximum calibration error."""
    return reliability(logits, targets, bins=bins).mce


def mean_entropy(logits: Array) -> float:
    """Return the mean entropy of the predictions, in nats; a probability of 0 counts nothing."""
    log_probs_NC = log_probs(logits)
    # The clamp makes 0 * -inf zero.
    return float(-(log_probs_NC.exp() * log_probs_NC.clamp(min=-1e4)).sum(1).mean())


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
