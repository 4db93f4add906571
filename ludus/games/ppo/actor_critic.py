"""ActorCritic: separate policy and value networks, and the policy's distribution over actions.

Shapes: B games, O features, A logits or numbers of an action, K uniform draws an action needs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, TypeGuard

import torch
from torch import Tensor, nn

from ludus.games.game import Bounds, Moves
from ludus.losses.distributions import (
    categorical_entropy,
    categorical_log_probs,
    gaussian_entropy,
    gaussian_log_probs,
)
from ludus.nn.engines.gate import GLOBAL_HOOKS, HOOKS

Outputs = tuple[Tensor, Tensor, Tensor | None]
"""Logits or means (B, A), values (B,), and log standard deviations (A,) for continuous actions."""


class ActorCritic(nn.Module):
    """Fully connected policy and value networks with tanh activations."""

    def __init__(self, num_features: int, moves: Moves | Bounds, widths: Sequence[int]) -> None:
        super().__init__()
        outputs = moves.count if isinstance(moves, Moves) else len(moves.low)
        self.policy = perceptron(num_features, widths, outputs, gain=0.01)
        self.value = perceptron(num_features, widths, 1, gain=1.0)
        self.log_std = None if isinstance(moves, Moves) else nn.Parameter(torch.zeros(outputs))

    def forward(self, obs_BO: Tensor) -> Outputs:
        """Return the policy's outputs, the values and the log standard deviations, if any."""
        return self.policy(obs_BO), self.value(obs_BO).squeeze(1), self.log_std


def acts_by_its_policy(network: nn.Module) -> TypeGuard[ActorCritic]:
    """Return whether `network.policy` alone computes the policy outputs of the whole network.

    A subclass may compute something else, and so may one whose forward was replaced or has hooks.
    """
    return (
        type(network) is ActorCritic
        and "forward" not in vars(network)
        and not any(getattr(network, name) for name in HOOKS)
        and not any(GLOBAL_HOOKS)
    )


def perceptron(inputs: int, widths: Sequence[int], outputs: int, *, gain: float) -> nn.Sequential:
    """Return linear layers with tanh between them, orthogonally initialised, the last scaled by `gain`."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [_linear(inputs, width, math.sqrt(2)), nn.Tanh()]
        inputs = width
    return nn.Sequential(*layers, _linear(inputs, outputs, gain))


def _linear(inputs: int, outputs: int, gain: float) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain)
    nn.init.zeros_(layer.bias)
    return layer


class ActionDistribution(Protocol):
    """The distribution over actions given a policy's outputs; all of it on tensors."""

    num_draws: int
    """The number of uniform numbers that one action needs."""

    def draw(self, outputs_BA: Tensor, log_std: Tensor | None, uniform_BK: Tensor) -> Tensor: ...
    def best(self, outputs_BA: Tensor) -> Tensor: ...
    def log_probs(self, outputs_BA: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor: ...
    def entropies(self, outputs_BA: Tensor, log_std: Tensor | None) -> Tensor: ...
    def to_game(self, actions: Tensor) -> Tensor: ...


def distribution_of(moves: Moves | Bounds) -> ActionDistribution:
    """Return the distribution over these actions."""
    return Categorical() if isinstance(moves, Moves) else Gaussian(moves)


class Categorical:
    """A categorical distribution over moves, by logits."""

    num_draws = 1

    def draw(self, outputs_BA: Tensor, log_std: Tensor | None, uniform_BK: Tensor) -> Tensor:
        """Return the first move at which the cumulative probability passes a uniform number."""
        weights_BA = (outputs_BA - outputs_BA.amax(1, keepdim=True)).exp()
        sums_BA = weights_BA.cumsum(1)
        return (sums_BA[:, :-1] <= uniform_BK * sums_BA[:, -1:]).sum(1)

    def best(self, outputs_BA: Tensor) -> Tensor:
        """Return the most likely move."""
        return outputs_BA.argmax(1)

    def log_probs(self, outputs_BA: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        """Return (B,) the log-probability of each move."""
        return categorical_log_probs(outputs_BA, actions)

    def entropies(self, outputs_BA: Tensor, log_std: Tensor | None) -> Tensor:
        """Return (B,) the entropy of each row."""
        return categorical_entropy(outputs_BA)

    def to_game(self, actions: Tensor) -> Tensor:
        """Return the moves."""
        return actions


class Gaussian:
    """A diagonal Gaussian; actions are clamped to the bounds of the game."""

    def __init__(self, bounds: Bounds) -> None:
        self.num_draws = len(bounds.low)
        self._bounds = bounds

    def draw(self, outputs_BA: Tensor, log_std: Tensor | None, uniform_BK: Tensor) -> Tensor:
        """Return the means plus noise, the normal quantiles of the uniform numbers."""
        assert log_std is not None
        # A uniform number of exactly 0 would give an infinite quantile.
        centred_BK = (2 * uniform_BK - 1 + 2.0**-24).clamp(-1 + 2.0**-23, 1 - 2.0**-23)
        return outputs_BA + log_std.exp() * (math.sqrt(2) * torch.erfinv(centred_BK))

    def best(self, outputs_BA: Tensor) -> Tensor:
        """Return the means."""
        return outputs_BA

    def log_probs(self, outputs_BA: Tensor, log_std: Tensor | None, actions: Tensor) -> Tensor:
        """Return (B,) the log-density of each action."""
        assert log_std is not None
        return gaussian_log_probs(outputs_BA, log_std, actions)

    def entropies(self, outputs_BA: Tensor, log_std: Tensor | None) -> Tensor:
        """Return (B,) the entropy, the same for each row."""
        assert log_std is not None
        return gaussian_entropy(log_std).expand(len(outputs_BA))

    def to_game(self, actions: Tensor) -> Tensor:
        """Return the actions within the bounds."""
        low, high = (actions.new_tensor(bound) for bound in (self._bounds.low, self._bounds.high))
        return actions.clamp(low, high)
