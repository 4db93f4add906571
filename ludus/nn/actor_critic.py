"""ActorCritic: the policy and the value of an observation, and the layers that both are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeGuard

import torch
from torch import Tensor, nn

from ludus.nn.engines.gate import GLOBAL_HOOKS, HOOKS

Outputs = tuple[Tensor, Tensor, Tensor | None]
"""The policy's outputs (B, A), the values (B,), and log_std (A,) for continuous actions, else None."""


class ActorCritic(nn.Module):
    """A policy and a value network, alone or on top of one body, or of one body each."""

    def __init__(
        self,
        policy: nn.Module,
        value: nn.Module,
        *,
        num_deviations: int,
        body: nn.Module | None = None,
        value_body: nn.Module | None = None,
    ) -> None:
        """`num_deviations` is the number of components of a continuous action, else 0."""
        super().__init__()
        self.body, self.value_body = body, value_body
        self.policy, self.value = policy, value
        # One log_std per action component, independent of the observation.
        self.log_std = nn.Parameter(torch.zeros(num_deviations)) if num_deviations else None

    def forward(self, obs: Tensor) -> Outputs:
        """Return policy outputs (B, A), values (B,) and, for continuous actions, log_std."""
        features = obs if self.body is None else self.body(obs)
        own = features if self.value_body is None else self.value_body(obs)
        return self.policy(features), self.value(own).squeeze(1), self.log_std


def acts_by_its_policy(network: nn.Module) -> TypeGuard[ActorCritic]:
    """Return whether `network.policy` alone computes the policy outputs of the whole network.

    A subclass may compute something else, and so may one whose forward was replaced or has hooks.
    """
    return (
        type(network) is ActorCritic
        and network.body is None
        and "forward" not in vars(network)
        and not any(getattr(network, name) for name in HOOKS)
        and not any(GLOBAL_HOOKS)
    )


def perceptron(inputs: int, widths: Sequence[int], outputs: int, *, gain: float) -> nn.Sequential:
    """Return linear layers with tanh between them, orthogonally initialised, the last scaled by `gain`."""
    layers: list[nn.Module] = []
    for width in widths:
        layers += [head(inputs, width, gain=math.sqrt(2)), nn.Tanh()]
        inputs = width
    return nn.Sequential(*layers, head(inputs, outputs, gain=gain))


def head(inputs: int, outputs: int, *, gain: float | None) -> nn.Linear:
    """Return the output layer of a network, a linear one.

    With a gain the weights are orthogonal, scaled by it, and the bias is zero; with None they have
    torch's default initialisation.
    """
    layer = nn.Linear(inputs, outputs)
    if gain is not None:
        make_orthogonal(layer, gain=gain)
    return layer


def make_orthogonal(layer: nn.Linear | nn.Conv2d, *, gain: float) -> None:
    """Initialise a layer with orthogonal weights of this gain and a zero bias."""
    nn.init.orthogonal_(layer.weight, gain)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
