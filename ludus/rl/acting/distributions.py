"""Action distributions: what a policy's outputs parametrise, for each kind of action space.

Shapes: N envs, B batch, A logits, K numbers of an action.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from ludus.envs.spaces import BoxActions, DiscreteActions, EnvSpec, MultiDiscreteActions
from ludus.losses.distributions import (
    categorical_entropy,
    categorical_log_probs,
    gaussian_entropy,
    gaussian_log_probs,
    masked_logits,
    multi_categorical_entropy,
    multi_categorical_log_probs,
)
from ludus.rl.acting.net import Masks, best_of, draw_categorical, masked

Array = NDArray[Any]


class ActionDistribution(Protocol):
    """A distribution over one kind of action; sampled in NumPy, differentiated in torch."""

    width: int
    """Number of components of an action."""
    num_outputs: int
    """Number of outputs of the network."""
    num_deviations: int
    """Number of standard deviations learned in addition to the outputs."""

    def draw(
        self, outputs: Array, log_std: Array | None, masks: Masks, generator: np.random.Generator
    ) -> Array: ...
    def best(self, outputs: Array, masks: Masks) -> Array: ...
    def to_env(self, actions: Array) -> Array: ...
    def log_probs(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor, masks: Tensor | None
    ) -> Tensor: ...
    def entropies(
        self, outputs: Tensor, log_std: Tensor | None, masks: Tensor | None
    ) -> Tensor: ...


def distribution_of(spec: EnvSpec) -> ActionDistribution:
    """Return the action distribution for an env."""
    if isinstance(spec.action, DiscreteActions):
        return Categorical(spec.action)
    if isinstance(spec.action, MultiDiscreteActions):
        return MultiCategorical(spec.action)
    return Gaussian(spec.action)


class Categorical:
    """One discrete action, given by logits."""

    width, num_deviations = 1, 0

    def __init__(self, actions: DiscreteActions) -> None:
        self.num_outputs = actions.n
        self._start = actions.start

    def draw(
        self, outputs: Array, log_std: Array | None, masks: Masks, generator: np.random.Generator
    ) -> Array:
        return draw_categorical(masked(outputs, masks), generator)

    def best(self, outputs: Array, masks: Masks) -> Array:
        return best_of(outputs, masks)

    def to_env(self, actions: Array) -> Array:
        return actions + self._start if self._start else actions

    def log_probs(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor, masks: Tensor | None
    ) -> Tensor:
        return categorical_log_probs(masked_logits(outputs, masks), actions[:, 0].long())

    def entropies(self, outputs: Tensor, log_std: Tensor | None, masks: Tensor | None) -> Tensor:
        return categorical_entropy(masked_logits(outputs, masks))


class MultiCategorical:
    """Several discrete choices at once, each with its own block of logits."""

    num_deviations = 0

    def __init__(self, actions: MultiDiscreteActions) -> None:
        self._nvec = list(actions.nvec)
        self._starts = np.asarray(actions.starts)
        self._cuts = np.cumsum(self._nvec)[:-1]
        self.width, self.num_outputs = len(self._nvec), sum(self._nvec)

    def draw(
        self, outputs: Array, log_std: Array | None, masks: Masks, generator: np.random.Generator
    ) -> Array:
        blocks = np.split(masked(outputs, masks), self._cuts, axis=1)
        return np.stack([draw_categorical(block, generator) for block in blocks], 1)

    def best(self, outputs: Array, masks: Masks) -> Array:
        blocks = np.split(masked(outputs, masks), self._cuts, axis=1)
        return np.stack([block.argmax(1) for block in blocks], 1)

    def to_env(self, actions: Array) -> Array:
        numbered: Array = actions + self._starts
        return numbered

    def log_probs(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor, masks: Tensor | None
    ) -> Tensor:
        logits = masked_logits(outputs, masks)
        return multi_categorical_log_probs(logits, actions.long(), nvec=self._nvec)

    def entropies(self, outputs: Tensor, log_std: Tensor | None, masks: Tensor | None) -> Tensor:
        return multi_categorical_entropy(masked_logits(outputs, masks), nvec=self._nvec)


class Gaussian:
    """Continuous actions around a mean; the raw sample is stored, the env gets it clipped."""

    def __init__(self, actions: BoxActions) -> None:
        self._low, self._high = actions.low, actions.high
        self.width = self.num_outputs = self.num_deviations = len(actions.low)

    def draw(
        self, outputs: Array, log_std: Array | None, masks: Masks, generator: np.random.Generator
    ) -> Array:
        assert log_std is not None
        noise = generator.standard_normal(outputs.shape, dtype=np.float32)
        found: Array = outputs + np.exp(log_std) * noise
        return found

    def best(self, outputs: Array, masks: Masks) -> Array:
        return outputs

    def to_env(self, actions: Array) -> Array:
        return actions.clip(self._low, self._high)

    def log_probs(
        self, outputs: Tensor, log_std: Tensor | None, actions: Tensor, masks: Tensor | None
    ) -> Tensor:
        assert log_std is not None
        return gaussian_log_probs(outputs, log_std, actions)

    def entropies(self, outputs: Tensor, log_std: Tensor | None, masks: Tensor | None) -> Tensor:
        assert log_std is not None
        return gaussian_entropy(log_std).expand(len(outputs))
