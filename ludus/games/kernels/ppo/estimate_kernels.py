"""Kernels between rollout and updates: values, advantages, and the statistics of each minibatch.

Shapes: M rows of a program, T steps, E games of a program, B games, U updates.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ludus.games.kernels.ppo.network import await_last, layers, outputs_of
from ludus.games.kernels.ppo.rollout_kernel import ROUNDS


@triton.jit(do_not_specialize=["num_rows", "num_all"])
def values_kernel(
    weights, records, finals, values, final_values, num_rows, num_all,
    F: tl.constexpr, X: tl.constexpr, Y: tl.constexpr,
    FP: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, ZP: tl.constexpr,
    R: tl.constexpr, M: tl.constexpr, GPU: tl.constexpr,
):  # fmt: skip
    """Write the values of the observations at each step, after the last, and at the end of
    truncated games."""
    await_last(GPU)
    column = tl.arange(0, FP)[None, :]
    w1, b1, w2, b2, w3, b3 = layers(weights, 1, F, X, Y, FP, XP, YP, ZP)
    for start in range(tl.program_id(0) * M, num_all, tl.num_programs(0) * M):
        row = start + tl.arange(0, M)
        inside = (row < num_all)[:, None] & (column < F)
        obs = tl.load(records + row[:, None] * R + column, mask=inside, other=0.0)
        flag = tl.load(records + row * R + F + 3, mask=row < num_rows, other=0.0)
        # The one output is the first column; the others are padding, and 0.
        value = tl.sum(outputs_of(obs, w1, b1, w2, b2, w3, b3, GPU), 1)
        tl.store(values + row, value, mask=row < num_all)
        if tl.max(flag, 0) == 2.0:
            inside = (flag == 2.0)[:, None] & (column < F)
            obs = tl.load(finals + row[:, None] * F + column, mask=inside, other=0.0)
            value = tl.sum(outputs_of(obs, w1, b1, w2, b2, w3, b3, GPU), 1)
            tl.store(final_values + row, value, mask=flag == 2.0)


@triton.jit
def _chain(keep_later, sum_later, keep, own):
    return keep_later * keep, own + keep * sum_later


@triton.jit(do_not_specialize=["num_games", "num_steps"])
def advantages_kernel(
    records, values, final_values, reward_scale, gamma, gae_lambda, num_games, num_steps,
    R: tl.constexpr, F: tl.constexpr, TP: tl.constexpr, E: tl.constexpr, GPU: tl.constexpr,
):  # fmt: skip
    """Replace rewards and flags in the records by advantages and values."""
    await_last(GPU)
    step = tl.arange(0, TP)[:, None]
    game = tl.program_id(0) * E + tl.arange(0, E)[None, :]
    inside = (step < num_steps) & (game < num_games)
    row = step * num_games + game
    reward = tl.load(records + row * R + F + 2, mask=inside, other=0.0)
    flag = tl.load(records + row * R + F + 3, mask=inside, other=1.0)
    value = tl.load(values + row, mask=inside, other=0.0)
    following = tl.load(values + row + num_games, mask=inside & (flag == 0.0), other=0.0)
    following += tl.load(final_values + row, mask=inside & (flag == 2.0), other=0.0)
    own = reward * reward_scale + gamma * following - value
    keep = tl.where(flag == 0.0, gamma * gae_lambda, 0.0)
    _, advantage = tl.associative_scan((keep, own), 0, _chain, reverse=True)
    tl.store(records + row * R + F + 2, advantage, mask=inside)
    tl.store(records + row * R + F + 3, value, mask=inside)


@triton.jit(do_not_specialize=["num_rows", "num_minibatches", "num_updates", "shift", "log_size"])
def sums_kernel(
    records, table, sums, num_rows, num_minibatches, num_updates, shift, log_size,
    R: tl.constexpr, F: tl.constexpr, UP: tl.constexpr, M: tl.constexpr, CP: tl.constexpr,
    GPU: tl.constexpr,
):  # fmt: skip
    """Write each program's sums of the advantages, and of their squares, for each update."""
    await_last(GPU)
    update = tl.arange(0, UP)
    epoch = (update // num_minibatches)[:, None]
    total = tl.zeros([UP], tl.float32)
    squares = tl.zeros([UP], tl.float32)
    for start in range(tl.program_id(0) * M, num_rows, tl.num_programs(0) * M):
        row = start + tl.arange(0, M)
        advantage = tl.load(records + row * R + F + 2, mask=row < num_rows, other=0.0)[None, :]
        place = row.to(tl.uint32)[None, :] + tl.zeros([UP, 1], tl.uint32)
        for back in tl.static_range(ROUNDS):
            at = epoch * 2 * ROUNDS + ROUNDS - 1 - back
            is_there = at < CP
            inverse = tl.load(table + CP + at, mask=is_there, other=0).to(tl.uint32, bitcast=True)
            is_there = at + ROUNDS < CP
            term = tl.load(table + ROUNDS + at, mask=is_there, other=0).to(tl.uint32, bitcast=True)
            place = place ^ (place >> shift)
            place = ((place - term) * inverse) & (num_rows - 1)
        is_mine = (place >> log_size).to(tl.int32) == (update % num_minibatches)[:, None]
        total += tl.sum(tl.where(is_mine, advantage, 0.0), 1)
        squares += tl.sum(tl.where(is_mine, advantage * advantage, 0.0), 1)
    at = sums + (tl.program_id(0) * num_updates + update) * 2
    tl.store(at, total, mask=update < num_updates)
    tl.store(at + 1, squares, mask=update < num_updates)


@triton.jit(do_not_specialize=["num_programs", "num_updates"])
def statistics_kernel(
    sums, statistics, num_programs, num_updates, size,
    UP: tl.constexpr, G: tl.constexpr, NORMALISED: tl.constexpr, GPU: tl.constexpr,
):  # fmt: skip
    """Write for each update the mean of its advantages and the inverse of their standard deviation."""
    await_last(GPU)
    update = tl.arange(0, UP)
    mean = tl.zeros([UP], tl.float32)
    scale = tl.full([UP], 1.0, tl.float32)
    if NORMALISED:
        total = tl.zeros([UP], tl.float32)
        squares = tl.zeros([UP], tl.float32)
        for start in range(0, num_programs, G):
            program = start + tl.arange(0, G)[:, None]
            inside = (program < num_programs) & (update < num_updates)[None, :]
            at = sums + (program * num_updates + update[None, :]) * 2
            total += tl.sum(tl.load(at, mask=inside, other=0.0), 0)
            squares += tl.sum(tl.load(at + 1, mask=inside, other=0.0), 0)
        mean = total / size
        variance = tl.maximum(squares - total * mean, 0.0) / (size - 1)
        scale = 1.0 / (tl.sqrt(variance) + 1e-8)
    tl.store(statistics + 2 * update, mean, mask=update < num_updates)
    tl.store(statistics + 2 * update + 1, scale, mask=update < num_updates)
