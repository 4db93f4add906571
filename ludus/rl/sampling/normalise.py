"""Normalisation by running means and standard deviations of observations and returns.

Shapes: N envs, D numbers of an observation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ludus.config.base import PositiveFloat, StrictConfig
from ludus.core import states

Moments = tuple[NDArray[Any], NDArray[Any]]
"""The shift subtracted from an observation, and the scale the difference is multiplied by."""

_SMALL = 1e-8
_ENOUGH = 32


class NormaliseConfig(StrictConfig):
    """Normalisation of observations and rewards by running statistics."""

    observations: bool
    """Normalise each component of an observation to mean 0 and standard deviation 1."""
    rewards: bool
    """Divide rewards by the standard deviation of the discounted return."""
    clip: PositiveFloat
    """Clip normalised values to this distance from zero; each reward of an n-step return is clipped
    separately."""

    def problems(self) -> Iterator[str]:
        """Yield a message if the section has no effect."""
        if not self.observations and not self.rewards:
            yield "neither observations nor rewards are normalised; set the whole section to null"


class RunningMoments:
    """Running mean and variance in float64, updated a batch at a time."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.mean = np.zeros(shape)
        self.variance = np.ones(shape)
        self.count = 0

    def gather(self, values: NDArray[Any]) -> None:
        """Update with a batch whose first axis is the examples."""
        batch = values.astype(np.float64, copy=False)
        count = len(batch)
        # np.add.reduce, not mean and var: those cost several times as much on a batch this small.
        mean = np.add.reduce(batch) / count
        centred = batch - mean
        total = self.count + count
        delta = mean - self.mean
        squares = self.variance * self.count + np.add.reduce(centred * centred)
        squares += delta * delta * (self.count * count / total)
        self.mean += delta * (count / total)
        self.variance = squares / total
        self.count = total

    def steadied(self) -> NDArray[Any]:
        """Return the variance, or 1 while there are too few examples to estimate it.

        A single env's first observation has zero variance, and must not be scaled by infinity.
        """
        return self.variance if self.count >= _ENOUGH else np.ones_like(self.variance)

    def state_dict(self) -> dict[str, Any]:
        return {"mean": self.mean, "variance": self.variance, "count": self.count}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.check_state(state)
        self.mean, self.variance = state["mean"].copy(), state["variance"].copy()
        self.count = state["count"]

    def check_state(self, state: Mapping[str, Any]) -> None:
        """Raise StateError unless this is the state of running moments."""
        states.check_keys(state, "mean", "variance", "count")
        states.like(state, "mean", self.mean, finite=True)
        variance = states.like(state, "variance", self.variance, finite=True)
        states.between("variance", variance, low=0)
        states.whole(state, "count", at_most=2**53)


class Normaliser:
    """Shifts and scales observations, and scales rewards, by running moments.

    The moments include a value before it is used: an observation before the network sees it, a
    reward before it enters a loss. Stored data stay raw and are normalised where they are used, by the
    newest moments; an on-policy agent stores the moments of each step (`moments`), so that the
    updates see a rollout as it was when collected.
    """

    def __init__(
        self,
        config: NormaliseConfig,
        obs_shape: tuple[int, ...],
        num_envs: int,
        *,
        gamma: float,
        device: torch.device,
        are_sums: bool = False,
    ) -> None:
        """With `are_sums` the rewards of a loss are n-step sums of rewards clipped by `clipped`."""
        self.clip = config.clip
        self._gamma = gamma
        self._are_sums = are_sums
        self._observed = RunningMoments(obs_shape) if config.observations else None
        self._returned = RunningMoments(()) if config.rewards else None
        self._returns_N = np.zeros(num_envs)
        """The discounted return so far of each env's current episode."""
        # One tensor, so that both reach the device in one copy.
        self._both = torch.stack([torch.zeros(obs_shape), torch.ones(obs_shape)]).to(device)
        self.shift, self.scale = self._both[0], self._both[1]
        self.reward_scale = torch.ones((), device=device)
        self._shift, self._scale = np.zeros(obs_shape, np.float32), np.ones(obs_shape, np.float32)

    def gather_rewards(self, rewards_N: NDArray[Any], ended_N: NDArray[Any]) -> None:
        """Update with the rewards of one step of every env."""
        if self._returned is not None:
            self._returns_N *= self._gamma
            self._returns_N += rewards_N
            self._returned.gather(self._returns_N)
            self._returns_N[ended_N] = 0.0
            self._publish_returned()

    def forget(self, cut_N: NDArray[Any]) -> None:
        """Reset the returns of these envs: their episodes were cut."""
        self._returns_N[cut_N] = 0.0

    def gather_observations(self, obs_ND: NDArray[Any]) -> None:
        """Update with the observations of the next actions."""
        if self._observed is not None:
            self._observed.gather(obs_ND)
            self._publish_observed(self._observed)

    def _publish_observed(self, observed: RunningMoments) -> None:
        # A new array each time: stored references to the old one stay valid, and a pending copy to
        # the device is not changed while it is made.
        both = np.empty((2, *observed.mean.shape), np.float32)
        both[0] = observed.mean
        both[1] = 1 / np.sqrt(observed.steadied() + _SMALL)
        self._shift, self._scale = both[0, ...], both[1, ...]
        self._both.copy_(torch.from_numpy(both), non_blocking=True)

    def _publish_returned(self) -> None:
        assert self._returned is not None
        self.reward_scale.fill_(1 / math.sqrt(float(self._returned.steadied()) + _SMALL))

    def _note_published(self) -> None:
        # Copies: stored moments must not follow tensors that change in place.
        self._shift, self._scale = (t.cpu().numpy().copy() for t in (self.shift, self.scale))

    @property
    def moments(self) -> Moments:
        """The current shift and scale of observations."""
        return self._shift, self._scale

    def seen(self, obs_TND: Tensor, moments: Sequence[Moments]) -> Tensor:
        """Return a rollout's observations on the CPU, each step normalised by its own moments."""
        if self._observed is None:
            return obs_TND
        shifts, scales = (
            torch.from_numpy(np.stack(column)) for column in zip(*moments, strict=True)
        )
        normal = (obs_TND - shifts.unsqueeze(1)) * scales.unsqueeze(1)
        return normal.clamp(-self.clip, self.clip)

    def obs(self, obs: Tensor) -> Tensor:
        """Return normalised observations for a network."""
        if self._observed is None:
            return obs
        return ((obs - self.shift) * self.scale).clamp(-self.clip, self.clip)

    def numpy_obs(self, obs_ND: NDArray[Any]) -> NDArray[Any]:
        """Return the same in NumPy."""
        if self._observed is None:
            return obs_ND
        normal: NDArray[Any] = (obs_ND - self._shift) * self._scale
        return normal.clip(-self.clip, self.clip)

    def rewards(self, rewards: Tensor) -> Tensor:
        """Return scaled rewards for a loss."""
        if self._returned is None:
            return rewards
        scaled = rewards * self.reward_scale
        return scaled if self._are_sums else scaled.clamp(-self.clip, self.clip)

    def clipped(self, rewards_N: NDArray[Any]) -> NDArray[Any]:
        """Return raw rewards, clipped at the unscaled equivalent of the clip range as of now."""
        if self._returned is None or self._returned.count < _ENOUGH:
            return rewards_N
        limit = self.clip * math.sqrt(float(self._returned.variance) + _SMALL)
        return rewards_N.clip(-limit, limit)

    def weights(self) -> dict[str, Tensor]:
        """Return what a trained policy needs: the shift and scale of observations."""
        return {"normalise.shift": self.shift, "normalise.scale": self.scale}

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Load the result of `weights`, for a policy that only acts."""
        own = self.weights()
        states.check_keys(weights, *own, optional=list(weights))
        found = {name: states.like(weights, name, own[name], finite=True) for name in own}
        self.shift.copy_(found["normalise.shift"])
        self.scale.copy_(found["normalise.scale"])
        self._note_published()

    def state_dict(self) -> dict[str, Any]:
        """Return all moments, and the returns of the current episodes."""
        return {
            "observed": None if self._observed is None else self._observed.state_dict(),
            "returned": None if self._returned is None else self._returned.state_dict(),
            "returns": self._returns_N,
            "published": [self.shift, self.scale, self.reward_scale],
        }

    def start_from(self, state: Mapping[str, Any]) -> None:
        """Take the moments of another run, not the returns of its episodes."""
        self.load_state_dict({**state, "returns": self._returns_N})

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore saved moments."""
        states.check_keys(state, "observed", "returned", "returns", "published")
        moments = {"observed": self._observed, "returned": self._returned}
        for name, own in moments.items():
            if own is not None:
                with states.within(name):
                    own.check_state(state[name])
            elif state[name] is not None:
                raise states.StateError(name, "is there, where this run has none")
        returns = states.like(state, "returns", self._returns_N, finite=True)
        shown = (self.shift, self.scale, self.reward_scale)
        published = states.rows(state, "published", length=len(shown))
        with states.within("published"):
            for index, tensor in enumerate(shown):
                saved = states.like(published, index, tensor, finite=True)
                # Only the first, the shift, may be negative.
                states.between(index, saved, low=0.0 if index else -math.inf)
        for name, own in moments.items():
            if own is not None:
                own.load_state_dict(state[name])
        self._returns_N[:] = returns
        for tensor, saved in zip(shown, published, strict=True):
            tensor.copy_(saved)
        self._note_published()
