"""Wrappers of the Triton kernels of Hironaka's game, for tensors on a CUDA device.

The plain functions of `rules/hironaka.py` are the reference: the kernels are bit-identical.

Shapes: B games, N points, D dimension, W columns of an observation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.games.kernels.triton_path import power_of_two, why_no_kernels

MAX_NUM_POINTS = 64
MAX_DIMENSION = 8
_FEW = 2**16
"""Below this number of games a program of the step holds one, so that all multiprocessors are used; else
four."""
_SMALL = 256
"""The number of games per program of a kernel that does little for each."""


def why_not(points_BND: Tensor) -> str | None:
    """Return a short reason why the kernels cannot play these games; None where they can."""
    _, num_points, dimension = points_BND.shape
    if num_points > MAX_NUM_POINTS or dimension > MAX_DIMENSION:
        return (
            f"the kernels hold {MAX_NUM_POINTS} points in {MAX_DIMENSION} dimensions at most, and a"
            f" game has {num_points} in {dimension}"
        )
    if points_BND.dtype != torch.float32:
        return f"the kernels are for float32, and the points are {points_BND.dtype}"
    return why_no_kernels(points_BND.device)


def settle(points_BND: Tensor, *, scale: bool) -> Tensor:
    """Return the points of a start: filtered, sorted and, where asked, divided by 2^120 if they are large."""
    return _stepped(points_BND, scale=scale)


def restart(points_BND: Tensor, over_B: Tensor, fresh_BND: Tensor, *, scale: bool) -> Tensor:
    """Return the points with games that are over replaced by new ones, which are settled."""
    return _stepped(fresh_BND, kept=(points_BND, over_B.view(torch.uint8)), scale=scale)


def move(
    points_BND: Tensor, coords_BD: Tensor, axis_B: Tensor, *, scale: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return points, coordinates and rewards (B, 2) after the agent's move; games that are over do not
    change."""
    ends = torch.empty_like(coords_BD), points_BND.new_empty(len(points_BND), 2)
    moved_BND = _stepped(points_BND, move=(coords_BD, axis_B), ends=ends, scale=scale)
    return moved_BND, *ends


def name(points_BND: Tensor, coords_BD: Tensor, actions_B: Tensor, table: Tensor) -> Tensor:
    """Return the coordinates (B, D) after the host's move; games that are over do not change."""
    from ludus.games.kernels import hironaka_triton

    num_games, num_points, dimension = points_BND.shape
    out_BD = torch.empty_like(coords_BD)
    hironaka_triton.name_kernel[(-(-num_games // _SMALL),)](
        points_BND.contiguous(),
        coords_BD.contiguous(),
        actions_B.contiguous(),
        table,
        out_BD,
        num_games,
        N=num_points,
        D=dimension,
        G=_SMALL,
    )
    return out_BD


def observation(
    points_BND: Tensor,
    coords_BD: Tensor | None,
    *,
    width: int,
    dtype: torch.dtype,
    scale: bool,
) -> Tensor:
    """Return (B, width) rows of points, then coordinates if given, then zeros, in this dtype.

    With `scale` the points of a game are divided by their greatest coordinate.
    """
    from ludus.games.kernels import hironaka_triton

    num_games, num_points, dimension = points_BND.shape
    out_BW = points_BND.new_empty(num_games, width, dtype=dtype)
    games = 16
    hironaka_triton.observe_kernel[(-(-num_games // games),)](
        points_BND.contiguous(),
        points_BND if coords_BD is None else coords_BD.contiguous(),
        out_BW,
        num_games,
        POINTS=num_points * dimension,
        COORDS=0 if coords_BD is None else dimension,
        WIDTH=width,
        W=power_of_two(width),
        G=games,
        IS_SCALED=scale,
    )
    return out_BW


def _stepped(
    points_BND: Tensor,
    *,
    scale: bool,
    move: tuple[Tensor, Tensor] | None = None,
    ends: tuple[Tensor, Tensor] | None = None,
    kept: tuple[Tensor, Tensor] | None = None,
) -> Tensor:
    """Return the points after a step; coordinates and rewards are written to `ends`."""
    from ludus.games.kernels import hironaka_triton

    num_games, num_points, dimension = points_BND.shape
    points_BND = points_BND.contiguous()
    out_BND = torch.empty_like(points_BND)
    # A pointer that is not read still has to be valid.
    unused = points_BND, points_BND
    games = 1 if num_games < _FEW else 4
    hironaka_triton.step_kernel[(-(-num_games // games),)](
        points_BND,
        *(tensor.contiguous() for tensor in move or unused),
        *(tensor.contiguous() for tensor in kept or unused),
        out_BND,
        *(ends or unused),
        num_games,
        N=num_points,
        D=dimension,
        P=power_of_two(num_points),
        G=games,
        IS_MOVE=move is not None,
        HAS_KEPT=kept is not None,
        IS_SCALED=scale,
        num_warps=1,
    )
    return out_BND
