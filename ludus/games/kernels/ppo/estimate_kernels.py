"""Kernels between rollout and updates: values, advantages, and the statistics of each minibatch.

Shapes: M rows of a program, T steps, E games of a program, B games.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ludus.games.kernels.ppo.network import matrix, tanh, vector
from ludus.games.kernels.ppo.rollout_kernel import ROUNDS


@triton.jit
def _values(obs, w1, b1, w2, b2, w3, b3, FAST: tl.constexpr):
    """Return (M,) the values of observations."""
    h1 = tanh(tl.dot(obs.to(tl.float16), w1) + b1, FAST)
    h2 = tanh(tl.dot(h1.to(tl.float16), w2) + b2, FAST)
    # The one output is the first column; the others are padding, and 0.
    return tl.sum(tl.dot(h2.to(tl.float16), w3) + b3, 1)


@triton.jit
def values_kernel(
    weights, records, flags, finals, values, final_values, num_rows, num_all,
    F: tl.constexpr, X: tl.constexpr, Y: tl.constexpr,
    FP: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, ZP: tl.constexpr,
    R: tl.constexpr, M: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Write the value of what was seen at each step and after the last, and of what truncated games saw."""
    row = tl.program_id(0) * M + tl.arange(0, M)
    column = tl.arange(0, FP)[None, :]
    w1 = matrix(weights, F, X, FP, XP)
    w2 = matrix(weights + F * X + X, X, Y, XP, YP)
    w3 = matrix(weights + F * X + X + X * Y + Y, Y, 1, YP, ZP)
    b1 = vector(weights + F * X, X, XP)
    b2 = vector(weights + F * X + X + X * Y, Y, YP)
    b3 = vector(weights + F * X + X + X * Y + Y + Y, 1, ZP)
    inside = (row < num_all)[:, None] & (column < F)
    obs = tl.load(records + row[:, None] * R + column, mask=inside, other=0.0)
    tl.store(values + row, _values(obs, w1, b1, w2, b2, w3, b3, FAST), mask=row < num_all)
    truncated = tl.load(flags + row, mask=row < num_rows, other=0) == 2
    if tl.max(truncated.to(tl.int32), 0) > 0:
        inside = truncated[:, None] & (column < F)
        obs = tl.load(finals + row[:, None] * F + column, mask=inside, other=0.0)
        tl.store(final_values + row, _values(obs, w1, b1, w2, b2, w3, b3, FAST), mask=truncated)


@triton.jit
def _chain(keep_later, sum_later, keep, own):
    return keep_later * keep, own + keep * sum_later


@triton.jit(do_not_specialize=["num_games", "num_steps", "last", "shift", "log_size"])
def advantages_kernel(
    records, rewards, flags, values, final_values, table, sums, gamma, gae_lambda,
    num_games, num_steps, last, shift, log_size,
    R: tl.constexpr, F: tl.constexpr, TP: tl.constexpr, E: tl.constexpr,
    PASSES: tl.constexpr, MINIBATCHES: tl.constexpr,
    CP: tl.constexpr, NORMALISED: tl.constexpr,
):  # fmt: skip
    """Write advantages and values into the records, and their sums by minibatch of each pass."""
    step = tl.arange(0, TP)[:, None]
    game = tl.program_id(0) * E + tl.arange(0, E)[None, :]
    inside = (step < num_steps) & (game < num_games)
    row = step * num_games + game
    flag = tl.load(flags + row, mask=inside, other=1)
    value = tl.load(values + row, mask=inside, other=0.0)
    following = tl.load(values + row + num_games, mask=inside & (flag == 0), other=0.0)
    following += tl.load(final_values + row, mask=inside & (flag == 2), other=0.0)
    own = tl.load(rewards + row, mask=inside, other=0.0) + gamma * following - value
    own = tl.where(inside, own, 0.0)
    keep = tl.where(flag == 0, gamma * gae_lambda, 0.0)
    _, advantage = tl.associative_scan((keep, own), 0, _chain, reverse=True)
    tl.store(records + row * R + F + 2, advantage, mask=inside)
    tl.store(records + row * R + F + 3, value, mask=inside)
    if NORMALISED:
        cell = sums + tl.program_id(0) * (2 * PASSES * MINIBATCHES)
        square = advantage * advantage
        for epoch in tl.static_range(PASSES):
            place = row.to(tl.uint32)
            for back in tl.static_range(ROUNDS):
                at = epoch * 2 * ROUNDS + ROUNDS - 1 - back
                inverse = tl.load(table + CP + at).to(tl.uint32, bitcast=True)
                term = tl.load(table + at + ROUNDS).to(tl.uint32, bitcast=True)
                place = place ^ (place >> shift)
                place = ((place - term) * inverse) & last
            minibatch = (place >> log_size).to(tl.int32)
            for m in tl.static_range(MINIBATCHES):
                mine = inside & (minibatch == m)
                at = epoch * MINIBATCHES + m
                tl.store(cell + 2 * at, tl.sum(tl.sum(tl.where(mine, advantage, 0.0), 1), 0))
                tl.store(cell + 2 * at + 1, tl.sum(tl.sum(tl.where(mine, square, 0.0), 1), 0))


@triton.jit
def statistics_kernel(
    sums, statistics, num_programs, size, NU: tl.constexpr, UP: tl.constexpr, G: tl.constexpr,
    NORMALISED: tl.constexpr,
):  # fmt: skip
    """Write for each update the mean of its advantages and one over their deviation."""
    update = tl.arange(0, UP)
    if NORMALISED:
        total = tl.zeros([UP], tl.float32)
        squares = tl.zeros([UP], tl.float32)
        for start in range(0, num_programs, G):
            program = start + tl.arange(0, G)[:, None]
            inside = (program < num_programs) & (update < NU)[None, :]
            at = sums + program * (2 * NU) + 2 * update[None, :]
            total += tl.sum(tl.load(at, mask=inside, other=0.0), 0)
            squares += tl.sum(tl.load(at + 1, mask=inside, other=0.0), 0)
        mean = total / size
        variance = tl.maximum(squares - total * mean, 0.0) / (size - 1)
        tl.store(statistics + 2 * update, mean, mask=update < NU)
        tl.store(statistics + 2 * update + 1, 1.0 / (tl.sqrt(variance) + 1e-8), mask=update < NU)
    else:
        tl.store(statistics + 2 * update, tl.zeros([UP], tl.float32), mask=update < NU)
        tl.store(statistics + 2 * update + 1, tl.full([UP], 1.0, tl.float32), mask=update < NU)
