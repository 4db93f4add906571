"""Export the policy of one role of a game, to act with NumPy alone."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.utils.fusion import fuse_linear_bn_eval

from ludus.core.abilities import Program
from ludus.core.errors import LudusError
from ludus.games.game import FusedGame, Moves
from ludus.games.networks import ResidualBlock
from ludus.nn.export.numpy_policy import Kind, save_policy
from ludus.nn.export.policy_program import PolicyProgram
from ludus.nn.export.steps import exported_steps


@dataclass(frozen=True)
class _OfMoves:
    n: int
    start: int = 0


@dataclass(frozen=True)
class _OfNumbers:
    low: NDArray[Any]
    high: NDArray[Any]


def export_policy(
    path: Path, game: FusedGame, role: str, kind: Kind, head: str, network: nn.Module
) -> None:
    """Write a fully connected network to its own directory.

    `ludus.NumpyPolicy.load(path)` reads it. `kind` and `head` say what its outputs are: action values
    (greedy, q), logits (categorical, logits) or means (gaussian, mean).
    """
    if any(part._forward_hooks or part._forward_pre_hooks for part in network.modules()):
        raise LudusError(
            f"the network of the {role} has forward hooks, which a policy for NumPy cannot have; remove"
            " them, or use its weights, which are in models/"
        )
    save_policy(
        path,
        kind=kind,
        obs_shape=(game.observation_size(role),),
        action=_action(game, role),
        body=[],
        heads={head: exported_steps(_folded(network))},
        has_masks=_has_masks(game, role),
    )


def policy_program(
    game: FusedGame, role: str, kind: Kind, head: str, network: nn.Module
) -> Program:
    """Return a network of values, logits or means as a program, from an observation to a move."""
    module = PolicyProgram(
        kind=kind,
        action=_action(game, role),
        body=nn.Identity(),
        heads={head: copy.deepcopy(network)},
        normalisation=None,
    )
    inputs = {"observation": torch.zeros(2, game.observation_size(role))}
    what = game.actions(role)
    if isinstance(what, Moves) and _has_masks(game, role):
        inputs["legal"] = torch.ones(2, what.count, dtype=torch.bool)
    return Program(module.cpu().eval(), inputs, "action")


def _action(game: FusedGame, role: str) -> _OfMoves | _OfNumbers:
    what = game.actions(role)
    if isinstance(what, Moves):
        return _OfMoves(what.count)
    low, high = (np.array(side, np.float32) for side in (what.low, what.high))
    return _OfNumbers(low, high)


def _has_masks(game: FusedGame, role: str) -> bool:
    return game.legal(torch.zeros(1, game.observation_size(role)), role) is not None


def _folded(network: nn.Module) -> nn.Module:
    """Return the network in eval mode, with batch norm folded into the linear layer before it."""
    if not isinstance(network, nn.Sequential):
        return network
    layers: list[nn.Module] = []
    for layer in copy.deepcopy(network).eval():
        if isinstance(layer, nn.BatchNorm1d) and layer.running_mean is None:
            raise LudusError(
                "the network has batch norm without running statistics, whose outputs depend on the batch;"
                " a policy for NumPy cannot have it; its weights are in models/"
            )
        if isinstance(layer, nn.BatchNorm1d) and layers and isinstance(layers[-1], nn.Linear):
            layers[-1] = fuse_linear_bn_eval(layers[-1], layer)
        elif isinstance(layer, ResidualBlock):
            raise LudusError(
                "the network has residual blocks (r.. in its net_arch), which a policy for NumPy cannot"
                " have; its weights are in models/"
            )
        else:
            layers.append(layer)
    return nn.Sequential(*layers)
