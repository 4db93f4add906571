"""The moves of Hironaka's host as numbers: a bijection with the sets of two or more coordinates.

Shapes: B games, D dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

import torch
from torch import Tensor

from ludus.core.errors import ConfigError, LudusError

MAX_DIMENSION = 16
"""The host has 2^dimension - dimension - 1 moves."""


def host_action_table(dimension: int) -> Tensor:
    """Return the 0/1 coordinates of each host action, one row per action.

    Row k is the k-th set of two or more coordinates, in the order of the sums of 2^c over its c.
    """
    check_dimension(dimension)
    sets = torch.arange(2**dimension)
    bits = (sets.unsqueeze(1) >> torch.arange(dimension)) & 1
    return bits[bits.sum(1) >= 2]


@overload
def encode_host_action(coords: Tensor) -> Tensor: ...
@overload
def encode_host_action(coords: Sequence[int]) -> int: ...
def encode_host_action(coords: Tensor | Sequence[int]) -> Tensor | int:
    """Return the host action of coordinates: a tensor for (B, D) 0/1 rows, an int for a list like [0, 2].

    A list is checked; a tensor is not, so that nothing waits for the device.
    """
    # Sets of fewer than two are skipped: one for each power of two up to this set's, and the empty one.
    if isinstance(coords, Tensor):
        axes_D = torch.arange(coords.shape[-1], device=coords.device)
        sets_B = (coords.long() << axes_D).sum(-1)
        return sets_B - (coords.long() * axes_D).amax(-1) - 2
    if len(set(coords)) != len(coords) or len(coords) < 2 or min(coords) < 0:
        raise LudusError(
            f"{list(coords)} was given; give two or more different coordinates, 0 or more"
        )
    return sum(1 << axis for axis in coords) - max(coords) - 2


@overload
def decode_host_action(action: Tensor, dimension: int) -> Tensor: ...
@overload
def decode_host_action(action: int, dimension: int) -> list[int]: ...
def decode_host_action(action: Tensor | int, dimension: int) -> Tensor | list[int]:
    """Return the coordinates of a host action: (B, D) 0/1 rows for a tensor, a list for one action."""
    table = host_action_table(dimension)
    if isinstance(action, Tensor):
        return table.to(action.device)[action.long()]
    if not 0 <= action < len(table):
        raise LudusError(
            f"the host's move {action} was given; in dimension {dimension} there are 0 to {len(table) - 1}"
        )
    return [axis for axis, is_named in enumerate(table[action].tolist()) if is_named]


def check_dimension(dimension: int) -> None:
    """Raise ConfigError unless the dimension gives the host a choice of practical size."""
    if dimension < 2:
        raise ConfigError(
            f"'dimension' is {dimension}; the host must name two coordinates, so use 2 or more"
        )
    if dimension > MAX_DIMENSION:
        raise ConfigError(
            f"'dimension' is {dimension}; the host would have 2^{dimension} - {dimension + 1} moves, so use"
            f" {MAX_DIMENSION} or less"
        )
