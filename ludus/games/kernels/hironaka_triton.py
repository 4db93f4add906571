"""Triton kernels of Hironaka's game; import this only where triton is installed.

A program holds G games at once, a tile of G x P numbers for each coordinate (P places, N rounded up to a
power of two). A point is compared with all of its game at once, one after the other, taken from the tile:
no N x N matrix is held, neither in registers nor in memory.

Shapes: B games, N points, D dimension. A tuple has one tile for each coordinate.
"""

# Triton is a language of its own: its functions have no types, and its tuples grow by + alone.
# mypy: ignore-errors
# ruff: noqa: RUF005

from __future__ import annotations

import triton
import triton.language as tl

# As in `hironaka/newton.py`; the other is its inverse.
_LARGEST = tl.constexpr(2.0**120)
_DOWN = tl.constexpr(2.0**-120)


@triton.jit
def _load(at, is_there, D: tl.constexpr):
    """Return the coordinates of points, a tile each; missing points are padding."""
    columns = ()
    for d in tl.static_range(D):
        columns = columns + (tl.load(at + d, mask=is_there, other=-1.0),)
    return columns


@triton.jit
def _shifted(columns, named, is_axis, D: tl.constexpr):
    """Return points after the move: the coordinate `axis` becomes the sum of the chosen ones."""
    total = columns[0] * named[0]
    for d in tl.static_range(1, D):
        total += columns[d] * named[d]
    is_present = columns[0] >= 0
    moved = ()
    for d in tl.static_range(D):
        moved = moved + (tl.where(is_axis[d] & is_present, total, columns[d]),)
    return moved


@triton.jit
def _filled(columns, is_kept, value, D: tl.constexpr):
    filled = ()
    for d in tl.static_range(D):
        filled = filled + (tl.where(is_kept, columns[d], value),)
    return filled


@triton.jit
def _joined(columns, others, is_other, D: tl.constexpr):
    joined = ()
    for d in tl.static_range(D):
        joined = joined + (tl.where(is_other, others[d], columns[d]),)
    return joined


@triton.jit
def _move(coords_ptr, axis_ptr, game, is_game, may_move, D: tl.constexpr):
    """Return the host's choice, as 0 or 1, and which coordinate changes, if any."""
    axis = tl.load(axis_ptr + game, mask=is_game, other=-1)
    named, is_axis = (), ()
    for d in tl.static_range(D):
        is_named = tl.load(coords_ptr + game * D + d, mask=is_game, other=0.0) != 0
        named = named + (is_named.to(tl.float32),)
        is_axis = is_axis + (is_named & (axis == d) & may_move,)
    return named, is_axis


@triton.jit
def _point(columns, j, G: tl.constexpr, D: tl.constexpr):
    """Return the coordinates of point j of each game, G x 1."""
    index = tl.full([G, 1], 0, tl.int32) + j
    point = ()
    for d in tl.static_range(D):
        point = point + (tl.gather(columns[d], index, 1),)
    return point


@triton.jit
def _count_bits(bits):
    """Return the number of set bits in numbers of 32 or 64 bits."""
    count = _count_half(bits.to(tl.uint32))
    if bits.dtype.primitive_bitwidth == 64:
        count += _count_half((bits >> 32).to(tl.uint32))
    return count.to(tl.int32)


@triton.jit
def _count_half(bits):
    bits = bits - ((bits >> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    bits = (bits + (bits >> 4)) & 0x0F0F0F0F
    return (bits * 0x01010101) >> 24


@triton.jit
def _compared(own, place, one, count, G: tl.constexpr, D: tl.constexpr):
    """Return which points one of the first `count` drops, and as bits which of these are greater."""
    dropped = tl.zeros_like(place + one).to(tl.int32)
    greater_bits = one * 0
    for j in range(count):
        other = _point(own, j, G, D)
        is_below = place >= 0
        is_equal = place >= 0
        is_greater = place < 0
        for d in tl.static_range(D):
            # Lexicographic comparison, by the first coordinate that differs.
            is_greater = is_greater | (is_equal & (other[d] > own[d]))
            is_equal = is_equal & (other[d] == own[d])
            is_below = is_below & (other[d] <= own[d])
        # Of equal points the first is kept: it drops only those after it.
        dropped = dropped | tl.where(is_below & ~(is_equal & (place <= j)), 1, 0)
        greater_bits = greater_bits | tl.where(is_greater, one << j, 0)
    return dropped != 0, greater_bits


@triton.jit
def _brought_down(columns, stays, D: tl.constexpr):
    """Return the points divided by 2^120 in games with a coordinate above that, except fixed games."""
    highest = columns[0]
    for d in tl.static_range(1, D):
        highest = tl.maximum(highest, columns[d])
    is_large = ~stays & (tl.max(highest, 1, keep_dims=True) > _LARGEST)
    factor = tl.where(is_large, _DOWN, 1.0)
    divided = ()
    for d in tl.static_range(D):
        divided = divided + (columns[d] * factor,)
    return divided


@triton.jit
def _end_move(coords_ptr, out_ptr, rewards_ptr, game, is_game, is_over, has_ended, D: tl.constexpr):
    """Write rewards and coordinates; in a game that was over rewards are 0 and the choice does not change."""
    reward = tl.where(has_ended & ~is_over, 1.0, 0.0)
    tl.store(rewards_ptr + game * 2, reward, mask=is_game)
    tl.store(rewards_ptr + game * 2 + 1, -reward, mask=is_game)
    for d in tl.static_range(D):
        kept = tl.load(coords_ptr + game * D + d, mask=is_game & is_over, other=0.0)
        tl.store(out_ptr + game * D + d, kept, mask=is_game)


@triton.jit
def step_kernel(
    points_ptr,
    coords_ptr,
    axis_ptr,
    kept_ptr,
    is_new_ptr,
    out_ptr,
    coords_out_ptr,
    rewards_ptr,
    num_games,
    N: tl.constexpr,
    D: tl.constexpr,
    P: tl.constexpr,
    G: tl.constexpr,
    IS_MOVE: tl.constexpr,
    HAS_KEPT: tl.constexpr,
    IS_SCALED: tl.constexpr,
):
    """Shift, drop duplicates and dominated points and sort, but leave games that are over.

    IS_SCALED divides large points. Without IS_MOVE they are starts; HAS_KEPT: others are in kept_ptr.
    """
    game = (tl.program_id(0) * G + tl.arange(0, G)).to(tl.int64)[:, None]
    place = tl.arange(0, P)[None, :]
    is_game = game < num_games
    is_row = is_game & (place < N)
    stays = game < 0
    if HAS_KEPT:
        stays = tl.load(is_new_ptr + game, mask=is_game, other=0) == 0
    own = _load(points_ptr + game * (N * D) + place * D, is_row & ~stays, D)
    if HAS_KEPT:
        own = _joined(
            own, _load(kept_ptr + game * (N * D) + place * D, is_row & stays, D), stays, D
        )
    if IS_MOVE:
        stays = tl.sum((own[0] >= 0).to(tl.int32), 1, keep_dims=True) <= 1
        named, is_axis = _move(coords_ptr, axis_ptr, game, is_game, ~stays, D)
        own = _shifted(own, named, is_axis, D)
    is_present = own[0] >= 0
    # A missing point is infinite: it dominates no point.
    own = _filled(own, is_present, float("inf"), D)
    one = tl.full([G, P], 1, tl.int32 if P <= 32 else tl.int64)
    # Sorted points leave their last places free: no game here has one after the count.
    count = tl.max(tl.max(tl.where(is_present & ~stays, place + 1, 0), 1), 0)
    is_dropped, greater_bits = _compared(own, place, one, count, G, D)
    is_alive = is_present & (stays | ~is_dropped)
    alive_bits = tl.sum(tl.where(is_alive, one << place, 0), 1, keep_dims=True)
    num_alive = _count_bits(alive_bits)
    # Kept points are distinct and ordered by rank; after them, in order, the places of the others.
    dead_before = _count_bits(((one << place) - 1) & ~alive_bits)
    rank = tl.where(is_alive, _count_bits(greater_bits & alive_bits), num_alive + dead_before)
    rank = tl.where(stays, place, rank)
    own = _filled(own, is_alive, -1.0, D)
    if IS_SCALED:
        own = _brought_down(own, stays, D)
    if IS_MOVE:
        _end_move(coords_ptr, coords_out_ptr, rewards_ptr, game, is_game, stays, num_alive <= 1, D)
    for d in tl.static_range(D):
        value = tl.where(is_alive, own[d], -1.0)
        tl.store(out_ptr + game * (N * D) + rank * D + d, value, mask=is_row)


@triton.jit
def name_kernel(
    points_ptr,
    coords_ptr,
    actions_ptr,
    table_ptr,
    out_ptr,
    num_games,
    N: tl.constexpr,
    D: tl.constexpr,
    G: tl.constexpr,
):
    """Write the coordinates of the host's actions; in a game that is over they do not change."""
    game = tl.program_id(0).to(tl.int64) * G + tl.arange(0, G)
    is_game = game < num_games
    # Points are sorted, so a game is over where there is no second one.
    is_over = tl.load(points_ptr + game * (N * D) + D, mask=is_game, other=0.0) < 0
    action = tl.load(actions_ptr + game, mask=is_game, other=0)
    for d in tl.static_range(D):
        named = tl.load(table_ptr + action * D + d, mask=is_game, other=0).to(tl.float32)
        kept = tl.load(coords_ptr + game * D + d, mask=is_game, other=0.0)
        tl.store(out_ptr + game * D + d, tl.where(is_over, kept, named), mask=is_game)


@triton.jit
def observe_kernel(
    points_ptr,
    coords_ptr,
    out_ptr,
    num_games,
    POINTS: tl.constexpr,
    COORDS: tl.constexpr,
    WIDTH: tl.constexpr,
    W: tl.constexpr,
    G: tl.constexpr,
    IS_SCALED: tl.constexpr,
):
    """Write rows of points, then coordinates, then zeros up to WIDTH, in the dtype of the output.

    IS_SCALED: the points of a game are divided by their greatest coordinate, except padding.
    """
    game = (tl.program_id(0).to(tl.int64) * G + tl.arange(0, G))[:, None]
    column = tl.arange(0, W)[None, :]
    is_game = game < num_games
    value = tl.load(
        points_ptr + game * POINTS + column, mask=is_game & (column < POINTS), other=0.0
    )
    if IS_SCALED:
        highest = tl.max(value, 1, keep_dims=True)
        divisor = tl.where((value > 0) & (highest > 0), highest, 1.0)
        value = tl.math.div_rn(value, divisor)
    if COORDS > 0:
        is_coord = is_game & (column >= POINTS) & (column < POINTS + COORDS)
        value += tl.load(coords_ptr + game * COORDS + column - POINTS, mask=is_coord, other=0.0)
    value = value.to(out_ptr.dtype.element_ty)
    tl.store(out_ptr + game * WIDTH + column, value, mask=is_game & (column < WIDTH))
