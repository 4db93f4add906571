"""The layout of two networks in a flat vector, and the reasons why a learner or a game cannot use the
kernels.

This file does not import Triton, so any command can use it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from ludus.games.elementwise import ElementwiseGame, own_function
from ludus.games.game import FusedGame, Moves
from ludus.games.kernels import triton_path
from ludus.games.kernels.inlinable import why_not_inlined
from ludus.games.kernels.ppo.iteration import PpoNumbers
from ludus.games.kernels.triton_path import power_of_two
from ludus.games.ppo.actor_critic import ActorCritic, acts_by_its_policy
from ludus.nn.engines.gate import why_not_repeatable
from ludus.nn.learner import Learner
from ludus.nn.optimizer import Adam
from ludus.nn.step import STEEP

MAX_WIDTH = 128
MAX_INPUTS = 28
MAX_OUTPUTS = 16
MAX_STEPS = 4096
METRICS = 8
"""The number of metrics that follow the gradient of all parameters."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The sizes of the networks and of a record."""

    inputs: int
    first: int
    second: int
    outputs: int
    policy_at: int
    value_at: int
    num_parameters: int

    @property
    def record(self) -> int:
        """The number of floats of a record: observation, action, log-probability, advantage, value."""
        return power_of_two(self.inputs + 4)

    @property
    def width(self) -> int:
        """The number of floats of a partial gradient, metrics included."""
        return -(-(self.num_parameters + METRICS) // 32) * 32

    def padded(self, size: int) -> int:
        """Return a size padded for the kernels: a power of two, 16 or more."""
        return max(16, power_of_two(size))


def layout_of(learner: Learner, network: ActorCritic) -> Layout:
    """Return the layout of the two networks in the learner's one vector."""
    part = learner.flat.parts[0]
    starts = dict(zip(part.names, _starts(part.sizes), strict=True))
    first, second, last = (
        layer for layer in network.policy.children() if isinstance(layer, nn.Linear)
    )
    return Layout(
        inputs=first.in_features,
        first=first.out_features,
        second=second.out_features,
        outputs=last.out_features,
        policy_at=starts["policy.0.weight"],
        value_at=starts["value.0.weight"],
        num_parameters=part.vector.numel(),
    )


def _starts(sizes: list[int]) -> list[int]:
    starts = [0]
    for size in sizes[:-1]:
        starts.append(starts[-1] + size)
    return starts


def why_no_kernels(game: FusedGame, learner: Learner, numbers: PpoNumbers) -> str | None:
    """Return why these cannot be trained by the kernels, as the end of a sentence; None where they can."""
    for reason in (
        triton_path.why_no_kernels(learner.flat.device),
        _why_not_game(game),
        _why_not_network(learner.module),
        _why_not_learner(learner),
        _why_not_numbers(numbers),
    ):
        if reason is not None:
            return reason
    return None


def _why_not_game(game: FusedGame) -> str | None:
    kind = type(game)
    if not isinstance(game, ElementwiseGame):
        return f"{kind.__name__} is not a game of numbers (ludus.games.elementwise)"
    if (name := own_function(game)) is not None:
        return f"{kind.__name__} has a function '{name}' of its own, which a kernel cannot inline"
    if not isinstance(game.moves, Moves):
        return f"the actions of {kind.__name__} are not moves, but numbers"
    if game.dtype != torch.float32:
        return f"the game's numbers are {game.dtype}, not torch.float32"
    if game.num_features > MAX_INPUTS or game.moves.count > MAX_OUTPUTS:
        return f"{kind.__name__} has over {MAX_INPUTS} features or over {MAX_OUTPUTS} moves"
    reasons = map(why_not_inlined, (game.begin, game.features, game.advance))
    return next((reason for reason in reasons if reason is not None), None)


def _why_not_network(network: nn.Module) -> str | None:
    if not acts_by_its_policy(network):
        own = type(network) is ActorCritic and why_not_repeatable(network, [network])
        return own or f"the network is {type(network).__name__}, not ActorCritic"
    policy, value = _sizes(network.policy), _sizes(network.value)
    if policy is None or value is None or max(policy[:-1]) > MAX_WIDTH:
        return (
            f"policy and value do not both have two hidden layers of width {MAX_WIDTH} or less, tanh"
            " after each, and nothing else"
        )
    if policy[:-1] != value[:-1] or value[-1] != 1:
        return f"the layers of the policy are {policy}, of the value {value}"
    if not all(weight.requires_grad for weight in network.parameters()):
        return "a part of the network is frozen"
    return why_not_repeatable(network, [network])


def _sizes(body: nn.Module) -> list[int] | None:
    """Return the sizes of three linear layers with tanh between them; None for anything else."""
    layers = list(body.children()) if type(body) is nn.Sequential else []
    if [type(layer) for layer in layers] != [nn.Linear, nn.Tanh, nn.Linear, nn.Tanh, nn.Linear]:
        return None
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    if any(layer.bias is None for layer in linear):
        return None
    return [linear[0].in_features, *(layer.out_features for layer in linear)]


def _why_not_learner(learner: Learner) -> str | None:
    config = learner.optimizer.config
    if not isinstance(config, Adam):
        return f"the optimizer is {config.kind}, not adam or adamw"
    if len(learner.flat.parts) != 1 or learner.flat.frozen:
        return "the parameters are in groups"
    if learner.ema is not None:
        return "the weights have an EMA"
    if learner.precision != "float32":
        return f"the precision is {learner.precision}, not float32"
    if learner.gradient_step.is_steep:
        return f"the learning rate is above {STEEP:g}"
    return None


def _why_not_numbers(numbers: PpoNumbers) -> str | None:
    rows = numbers.num_rows
    if rows & (rows - 1) or rows % numbers.num_minibatches:
        return (
            f"a rollout has {rows} steps, which is not a power of two that {numbers.num_minibatches}"
            " minibatches divide"
        )
    if numbers.rollout_steps > MAX_STEPS:
        return f"a rollout has {numbers.rollout_steps} steps a game, and at most {MAX_STEPS} fit"
    return None
