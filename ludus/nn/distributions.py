"""Distributions over actions: sampled in NumPy or on the device, differentiated in torch.

A policy's outputs parametrise them; `log_std` is given for continuous actions alone. Where actions are
masked, torch's methods take outputs that `losses.distributions.masked_logits` has masked.

Shapes: N envs, B batch, A outputs of a policy, K numbers of an action.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.losses.distributions import (
    categorical_entropy,
    categorical_log_probs,
    gaussian_entropy,
    gaussian_log_probs,
    multi_categorical_entropy,
    multi_categorical_log_probs,
)
from ludus.losses.sac import squashed_sample

Array = NDArray[Any]
T = TypeVar("T")
"""An array of NumPy, or a tensor."""
Masks = NDArray[np.bool_] | None
"""Action masks (N, A): which actions are allowed; None where there are no masks."""

_LEAST_DRAW = np.float32(1e-30)
# The log_std of a squashed Gaussian is clamped to this range.
_LOG_STD = (-20.0, 2.0)


class ActionDistribution(Protocol):
    """A distribution over one kind of action."""

    width: int
    """Number of components of an action."""
    num_outputs: int
    """Number of outputs of the network."""
    num_deviations: int
    """Number of standard deviations learned in addition to the outputs."""
    num_draws: int
    """Number of uniform numbers that `draw` needs for one action."""

    def sample(
        self, outputs_NA: Array, log_std: Array | None, masks_NA: Masks, rng: np.random.Generator
    ) -> Array: ...
    def draw(self, outputs_BA: Tensor, log_std: Tensor | None, uniform_BK: Tensor) -> Tensor: ...
    def best(self, outputs: T, masks_NA: Masks = None) -> T: ...
    def to_env(self, actions: T) -> T: ...
    def log_probs(self, outputs_BA: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor: ...
    def entropies(self, outputs_BA: Tensor, log_std: Tensor | None) -> Tensor: ...


class Categorical:
    """One discrete action, given by logits; the env numbers actions from `start`."""

    width = num_draws = 1
    num_deviations = 0

    def __init__(self, num_actions: int, start: int = 0) -> None:
        self.num_outputs = num_actions
        self._start = start

    def sample(
        self, outputs_NA: Array, log_std: Array | None, masks_NA: Masks, rng: np.random.Generator
    ) -> Array:
        """Return a sampled action for each row, in NumPy."""
        return draw_categorical(masked(outputs_NA, masks_NA), rng)

    def draw(self, outputs_BA: Tensor, log_std: Tensor | None, uniform_BK: Tensor) -> Tensor:
        """Return an action for each row, by one uniform number each."""
        return draw_by_uniform(outputs_BA, uniform_BK)

    def best(self, outputs: T, masks_NA: Masks = None) -> T:
        """Return the most likely action of each row."""
        given: Any = outputs
        best: T = (given if masks_NA is None else masked(given, masks_NA)).argmax(1)
        return best

    def to_env(self, actions: T) -> T:
        """Return the actions in the env's numbering."""
        given: Any = actions
        numbered: T = given + self._start if self._start else actions
        return numbered

    def log_probs(self, outputs_BA: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        """Return (B,) the log-probability of each action, (B,) or (B, 1)."""
        return categorical_log_probs(outputs_BA, actions.flatten().long())

    def entropies(self, outputs_BA: Tensor, log_std: Tensor | None) -> Tensor:
        """Return (B,) the entropy of each row."""
        return categorical_entropy(outputs_BA)


class MultiCategorical:
    """Several discrete choices at once, each with its own block of logits."""

    num_deviations = 0

    def __init__(self, nvec: Sequence[int], starts: Sequence[int]) -> None:
        self._nvec, self._starts = list(nvec), np.asarray(starts)
        self._cuts = np.cumsum(self._nvec)[:-1]
        self.width = self.num_draws = len(self._nvec)
        self.num_outputs = sum(self._nvec)

    def sample(
        self, outputs_NA: Array, log_std: Array | None, masks_NA: Masks, rng: np.random.Generator
    ) -> Array:
        """Return a sampled row of choices for each row, in NumPy."""
        blocks = np.split(masked(outputs_NA, masks_NA), self._cuts, axis=1)
        return np.stack([draw_categorical(block, rng) for block in blocks], 1)

    def draw(self, outputs_BA: Tensor, log_std: Tensor | None, uniform_BK: Tensor) -> Tensor:
        """Return a row of choices for each row, one uniform number for each choice."""
        blocks = zip(outputs_BA.split(self._nvec, 1), uniform_BK.split(1, 1), strict=True)
        return torch.stack([draw_by_uniform(logits, uniform) for logits, uniform in blocks], 1)

    def best(self, outputs: T, masks_NA: Masks = None) -> T:
        """Return the most likely choices of each row of an array."""
        given: Any = outputs
        blocks = np.split(masked(given, masks_NA), self._cuts, axis=1)
        return np.stack([block.argmax(1) for block in blocks], 1)  # type: ignore[return-value]

    def to_env(self, actions: T) -> T:
        """Return the choices in the env's numbering."""
        given: Any = actions
        numbered: T = given + self._starts
        return numbered

    def log_probs(self, outputs_BA: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        """Return (B,) the log-probability of each row of choices."""
        return multi_categorical_log_probs(outputs_BA, actions.long(), nvec=self._nvec)

    def entropies(self, outputs_BA: Tensor, log_std: Tensor | None) -> Tensor:
        """Return (B,) the entropy of each row."""
        return multi_categorical_entropy(outputs_BA, nvec=self._nvec)


class Gaussian:
    """A diagonal Gaussian; the raw sample is stored, the env gets it clipped to its bounds."""

    def __init__(self, low: Sequence[float] | Array, high: Sequence[float] | Array) -> None:
        """`low` and `high` are the bounds of the env's actions."""
        self._low, self._high = low, high
        self.width = self.num_outputs = self.num_deviations = self.num_draws = len(low)

    def sample(
        self, outputs_NA: Array, log_std: Array | None, masks_NA: Masks, rng: np.random.Generator
    ) -> Array:
        """Return the means plus noise, in NumPy."""
        assert log_std is not None
        noise = rng.standard_normal(outputs_NA.shape, dtype=np.float32)
        found: Array = outputs_NA + np.exp(log_std) * noise
        return found

    def draw(self, outputs_BA: Tensor, log_std: Tensor | None, uniform_BK: Tensor) -> Tensor:
        """Return the means plus noise, the normal quantiles of the uniform numbers."""
        assert log_std is not None
        # A uniform number of exactly 0 would give an infinite quantile.
        centred_BK = (2 * uniform_BK - 1 + 2.0**-24).clamp(-1 + 2.0**-23, 1 - 2.0**-23)
        return outputs_BA + log_std.exp() * (math.sqrt(2) * torch.erfinv(centred_BK))

    def best(self, outputs: T, masks_NA: Masks = None) -> T:
        """Return the means."""
        return outputs

    def to_env(self, actions: T) -> T:
        """Return the actions clipped to the bounds."""
        given: Any = actions
        bounds: Any = self._low, self._high
        if isinstance(given, Tensor):
            bounds = [given.new_tensor(bound) for bound in bounds]
        clipped: T = given.clip(*bounds)
        return clipped

    def log_probs(self, outputs_BA: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        """Return (B,) the log-density of each action."""
        assert log_std is not None
        return gaussian_log_probs(outputs_BA, log_std, actions)

    def entropies(self, outputs_BA: Tensor, log_std: Tensor | None) -> Tensor:
        """Return (B,) the entropy, the same for each row."""
        assert log_std is not None
        return gaussian_entropy(log_std).expand(len(outputs_BA))


class SquashedGaussian:
    """tanh of a Gaussian whose mean and log_std both depend on the observation, as in SAC."""

    def __init__(self, low: Array, high: Array) -> None:
        """`low` and `high` are the bounds of the env's actions; stored actions are in [-1, 1]."""
        self._low, self._high = low, high
        self.width, self.num_outputs = len(low), 2 * len(low)

    def sample(self, outputs_NA: Array, rng: np.random.Generator) -> Array:
        """Return a sampled action for each row, in NumPy."""
        means, log_stds = outputs_NA[:, : self.width], outputs_NA[:, self.width :]
        noise = rng.standard_normal(means.shape, dtype=np.float32)
        drawn: Array = np.tanh(means + np.exp(log_stds.clip(*_LOG_STD)) * noise)
        return drawn

    def best(self, outputs_NA: Array) -> Array:
        """Return tanh of the means."""
        middle: Array = np.tanh(outputs_NA[:, : self.width])
        return middle

    def to_env(self, actions: Array) -> Array:
        """Return actions in [-1, 1] rescaled to the env's bounds."""
        scaled: Array = self._low + (actions + 1) * (0.5 * (self._high - self._low))
        return scaled.clip(self._low, self._high)

    def draw(self, outputs_BA: Tensor, noise_BK: Tensor) -> tuple[Tensor, Tensor]:
        """Return an action for each row of standard normal noise, and its log-probability."""
        means, log_stds = outputs_BA.float().chunk(2, 1)
        return squashed_sample(means, log_stds.clamp(*_LOG_STD), noise_BK)


def draw_categorical(logits_NA: Array, rng: np.random.Generator) -> NDArray[np.int64]:
    """Sample one action per row with probability proportional to exp(logit)."""
    # The argmin of exponential draws divided by their weights is distributed by those weights.
    draws_NA = rng.standard_exponential(logits_NA.shape, dtype=np.float32)
    # One draw in millions is 0, whose logarithm would win against any mask.
    np.maximum(draws_NA, _LEAST_DRAW, out=draws_NA)
    np.log(draws_NA, out=draws_NA)
    drawn: NDArray[np.int64] = (logits_NA - draws_NA).argmax(1)
    return drawn


def draw_by_uniform(logits_BA: Tensor, uniform_B1: Tensor) -> Tensor:
    """Return the first action of each row at which the cumulative probability passes a uniform number."""
    weights_BA = (logits_BA - logits_BA.amax(1, keepdim=True)).exp()
    sums_BA = weights_BA.cumsum(1)
    return (sums_BA[:, :-1] <= uniform_B1 * sums_BA[:, -1:]).sum(1)


def best_of(values_NA: Array, masks_NA: Masks) -> NDArray[np.int64]:
    """Return the argmax of each row among the allowed actions."""
    best: NDArray[np.int64]
    best = (values_NA if masks_NA is None else masked(values_NA, masks_NA)).argmax(1)
    return best


def masked(values_NA: Array, masks_NA: Masks) -> Array:
    """Return the values with those of masked actions set to the lowest number."""
    if masks_NA is None:
        return values_NA
    return np.where(masks_NA, values_NA, np.float32(-3.0e38))
