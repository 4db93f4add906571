"""A move of Hironaka's game as one Triton kernel, where the tensors are on a CUDA device.

The plain functions of `rules/hironaka.py` are the reference: what a kernel computes is equal to the bit.

Shapes: B games, N points, D dimension, W columns of an observation.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.games.kernels.triton_path import power_of_two, why_no_kernels

MAX_NUM_POINTS = 64
MAX_DIMENSION = 8
_GAMES = 8
"""How many games a program of the step holds, with four warps: a warp has two of them."""
_WARPS = 4
_SMALL = 256
"""How many games a program holds of a kernel that has little to do for each."""


def why_not(points_BND: Tensor) -> str | None:
    """Return why the kernels cannot move these games, in a few words; None where they can."""
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
    """Return the points of a start: filtered, sorted and, where asked, rescaled."""
    out_BND = torch.empty_like(points_BND)
    _launch_step(points_BND, None, None, (out_BND, out_BND, out_BND), scale=scale)
    return out_BND


def move(
    points_BND: Tensor, coords_BD: Tensor, axis_B: Tensor, *, scale: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return points, coordinates and rewards (B, 2) after the agent's move; what was over stays."""
    out = (
        torch.empty_like(points_BND),
        torch.empty_like(coords_BD),
        points_BND.new_empty(len(points_BND), 2),
    )
    _launch_step(points_BND, coords_BD.contiguous(), axis_B.contiguous(), out, scale=scale)
    return out


def name(points_BND: Tensor, coords_BD: Tensor, actions_B: Tensor, table: Tensor) -> Tensor:
    """Return the coordinates (B, D) after the host's move; what was over stays."""
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
    points_BND: Tensor, coords_BD: Tensor | None, *, width: int, dtype: torch.dtype
) -> Tensor:
    """Return (B, width) rows of points, then coordinates if given, then zeros, in this type."""
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
    )
    return out_BW


def _launch_step(
    points_BND: Tensor,
    coords_BD: Tensor | None,
    axis_B: Tensor | None,
    out: tuple[Tensor, Tensor, Tensor],
    *,
    scale: bool,
) -> None:
    from ludus.games.kernels import hironaka_triton

    num_games, num_points, dimension = points_BND.shape
    points_BND = points_BND.contiguous()
    hironaka_triton.step_kernel[(-(-num_games // _GAMES),)](
        points_BND,
        points_BND if coords_BD is None else coords_BD,
        points_BND if axis_B is None else axis_B,
        *out,
        num_games,
        N=num_points,
        D=dimension,
        P=power_of_two(num_points),
        G=_GAMES,
        IS_MOVE=axis_B is not None,
        IS_SCALED=scale,
        num_warps=_WARPS,
    )
