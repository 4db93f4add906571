"""Write the policy of one role of a game so that NumPy alone can act by it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ludus.games.game import FusedGame, Moves
from ludus.nn.export.numpy_policy import Kind, save_policy
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
    """Write a network of fully connected layers to a directory of its own.

    `ludus.NumpyPolicy.load(path)` reads it. `kind` and `head` say what its outputs are: values of moves
    (greedy, q), logits (categorical, logits) or means (gaussian, mean).
    """
    what, size = game.actions(role), game.observation_size(role)
    action: object
    if isinstance(what, Moves):
        action = _OfMoves(what.count)
    else:
        low, high = (np.array(side, np.float32) for side in (what.low, what.high))
        action = _OfNumbers(low, high)
    save_policy(
        path,
        kind=kind,
        obs_shape=(size,),
        action=action,
        body=[],
        heads={head: exported_steps(network)},
        has_masks=game.legal(torch.zeros(1, size), role) is not None,
    )
