"""The Triton kernel of epsilon-greedy choices; import this only where triton is installed.

Shapes: B games, A moves; a program has a tile of G games and P moves, A rounded up to a power of two.
"""

# Triton is a language of its own: its functions have no types.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def choose_kernel(
    values_ptr,
    legal_ptr,
    rate_ptr,
    draws_ptr,
    actions_ptr,
    num_games,
    values_stride,
    draws_stride,
    A: tl.constexpr,
    P: tl.constexpr,
    G: tl.constexpr,
    IS_MASKED: tl.constexpr,
    IS_EXPLORING: tl.constexpr,
):
    """Write the best legal move of each game, or with probability `rate` any legal one."""
    game = (tl.program_id(0).to(tl.int64) * G + tl.arange(0, G))[:, None]
    move = tl.arange(0, P)[None, :]
    is_game = game < num_games
    is_move = is_game & (move < A)
    is_legal = is_move
    if IS_MASKED:
        is_legal = tl.load(legal_ptr + game * A + move, mask=is_move, other=0) != 0
    value = tl.load(values_ptr + game * values_stride + move, mask=is_move, other=0.0)
    value = tl.where(is_legal, value.to(tl.float32), float("-inf"))
    # Ties go to the first move, on every device.
    is_best = is_legal & (value == tl.max(value, 1, keep_dims=True))
    best = tl.min(tl.where(is_best, move, P), 1, keep_dims=True)

    action = best
    if IS_EXPLORING:
        num_before = tl.cumsum(is_legal.to(tl.int32), 1)
        count = tl.sum(is_legal.to(tl.int32), 1, keep_dims=True)
        share = tl.load(draws_ptr + game * draws_stride + 1, mask=is_game, other=0.0)
        wanted = (share * count.to(tl.float32)).to(tl.int32)
        drawn = tl.min(tl.where(is_legal & (num_before > wanted), move, P), 1, keep_dims=True)
        is_drawn = tl.load(draws_ptr + game * draws_stride, mask=is_game, other=1.0) < tl.load(
            rate_ptr
        )
        action = tl.where(is_drawn, drawn, best)
    action = tl.where(action < P, action, 0).to(tl.int64)
    tl.store(actions_ptr + game, action, mask=is_game)
