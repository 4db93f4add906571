"""The actor-critic of a role and the distribution of its actions, by its action space."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.games.game import Bounds, Moves
from ludus.nn.actor_critic import ActorCritic, Outputs, acts_by_its_policy, perceptron
from ludus.nn.distributions import ActionDistribution, Categorical, Gaussian


def make_actor_critic(
    num_features: int,
    moves: Moves | Bounds,
    widths: Sequence[int],
    kind: type[ActorCritic] = ActorCritic,
) -> ActorCritic:
    """Return fully connected policy and value networks with tanh activations."""
    distribution = distribution_of(moves)
    policy = perceptron(num_features, widths, distribution.num_outputs, gain=0.01)
    value = perceptron(num_features, widths, 1, gain=1.0)
    return kind(policy, value, num_deviations=distribution.num_deviations)


def distribution_of(moves: Moves | Bounds) -> ActionDistribution:
    """Return the distribution over these actions."""
    if isinstance(moves, Moves):
        return Categorical(moves.count)
    return Gaussian(moves.low, moves.high)


__all__ = [
    "ActionDistribution",
    "ActorCritic",
    "Outputs",
    "acts_by_its_policy",
    "distribution_of",
    "make_actor_critic",
]
