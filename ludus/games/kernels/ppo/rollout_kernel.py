"""One kernel that plays all steps of a rollout: the game's own step and the policy's network inlined.

Shapes: E games of a program, T steps, B games; names of padded widths as in `network.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ludus.games.kernels.counter_draws import stream_of, uniform, words
from ludus.games.kernels.ppo.network import matrix, tanh, vector

ROUNDS = tl.constexpr(4)


@triton.jit
def shuffle_constants(keys, iteration, table, CP: tl.constexpr):
    """Write the factors, terms and inverse factors of the shuffles of an iteration."""
    first, second = stream_of(keys, 3, iteration)
    index = tl.arange(0, CP)
    word = words(first, second, index.to(tl.uint32))
    is_factor = index % (2 * ROUNDS) < ROUNDS
    word = tl.where(is_factor, word | 1, word)
    inverse = word
    for _ in tl.static_range(5):
        inverse = inverse * (2 - word * inverse)
    tl.store(table + index, word.to(tl.int32, bitcast=True))
    tl.store(table + CP + index, inverse.to(tl.int32, bitcast=True))


@triton.jit(do_not_specialize=["num_games", "num_steps", "max_steps"])
def rollout_kernel(
    numbers, steps, returns, weights, records, rewards, flags, finals, episodes,
    keys, iteration_at, table, num_games, num_steps, max_steps,
    begin: tl.constexpr, features: tl.constexpr, advance: tl.constexpr,
    S: tl.constexpr, U: tl.constexpr, F: tl.constexpr, X: tl.constexpr, Y: tl.constexpr,
    Z: tl.constexpr, FP: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, ZP: tl.constexpr,
    R: tl.constexpr, E: tl.constexpr, CP: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Play; write a record a step, rewards, flags (1 ended, 2 truncated), what truncated games saw last."""
    iteration = tl.load(iteration_at)
    if tl.program_id(0) == 0:
        shuffle_constants(keys, iteration, table, CP)
    game = tl.program_id(0) * E + tl.arange(0, E)
    inside = game < num_games
    column = tl.arange(0, FP)[None, :]
    choice = tl.arange(0, ZP)[None, :]
    w1 = matrix(weights, F, X, FP, XP)
    w2 = matrix(weights + F * X + X, X, Y, XP, YP)
    w3 = matrix(weights + F * X + X + X * Y + Y, Y, Z, YP, ZP)
    b1 = vector(weights + F * X, X, XP)
    b2 = vector(weights + F * X + X + X * Y, Y, YP)
    b3 = vector(weights + F * X + X + X * Y + Y + Y * Z, Z, ZP)
    a_first, a_second = stream_of(keys, 2, iteration)
    s_first, s_second = stream_of(keys, 1, iteration)
    state = ()
    for i in tl.static_range(S):
        state = state + (tl.load(numbers + game * S + i, mask=inside, other=0.0),)  # type: ignore[assignment]  # noqa: RUF005
    step = tl.load(steps + game, mask=inside, other=0)
    gained = tl.load(returns + game, mask=inside, other=0.0)
    num_over = tl.zeros([E], tl.float32)
    sum_gained = tl.zeros([E], tl.float32)
    sum_steps = tl.zeros([E], tl.float32)
    for t in range(num_steps):
        row = t * num_games + game
        seen = features(*state)
        obs = tl.zeros([E, FP], tl.float32)
        for i in tl.static_range(F):
            obs = tl.where(column == i, seen[i][:, None], obs)
            tl.store(records + row * R + i, seen[i], mask=inside)
        h1 = tanh(tl.dot(obs.to(tl.float16), w1) + b1, FAST)
        h2 = tanh(tl.dot(h1.to(tl.float16), w2) + b2, FAST)
        logits = tl.where(choice < Z, tl.dot(h2.to(tl.float16), w3) + b3, -1e30)
        top = tl.max(logits, 1)
        weight = tl.exp(logits - top[:, None])
        total = tl.sum(weight, 1)
        drawn = uniform(a_first, a_second, row.to(tl.uint32)) * total
        below = tl.zeros([E], tl.float32)
        action = tl.zeros([E], tl.int32)
        for z in tl.static_range(Z - 1):
            below += tl.sum(tl.where(choice == z, weight, 0.0), 1)
            action += (below <= drawn).to(tl.int32)
        taken = tl.sum(tl.where(choice == action[:, None], logits, 0.0), 1)
        tl.store(records + row * R + F, action.to(tl.float32), mask=inside)
        tl.store(records + row * R + F + 1, taken - top - tl.log(total), mask=inside)
        outcome = advance(*state, action)
        state = outcome[:S]
        reward = tl.zeros([E], tl.float32) + outcome[S]
        ended = outcome[S + 1]
        step += 1
        truncated = (step >= max_steps) & (ended == 0)
        over = (ended != 0) | truncated
        tl.store(rewards + row, reward, mask=inside)
        tl.store(flags + row, tl.where(truncated, 2, (ended != 0).to(tl.int32)), mask=inside)
        last = features(*state)
        for i in tl.static_range(F):
            tl.store(finals + row * F + i, last[i], mask=inside & truncated)
        gained += reward
        num_over += tl.where(over, 1.0, 0.0)
        sum_gained += tl.where(over, gained, 0.0)
        sum_steps += tl.where(over, step.to(tl.float32), 0.0)
        gained = tl.where(over, 0.0, gained)
        step = tl.where(over, 0, step)
        draws = ()
        for i in tl.static_range(U):
            drawn = uniform(s_first, s_second, (row * U + i).to(tl.uint32))
            draws = draws + (drawn,)  # type: ignore[assignment]  # noqa: RUF005
        fresh = begin(*draws)
        mixture = ()
        for i in tl.static_range(S):
            mixture = mixture + (tl.where(over, fresh[i], state[i]),)  # type: ignore[assignment]  # noqa: RUF005
        state = mixture
    seen = features(*state)
    for i in tl.static_range(F):
        tl.store(records + (num_steps * num_games + game) * R + i, seen[i], mask=inside)
    for i in tl.static_range(S):
        tl.store(numbers + game * S + i, state[i], mask=inside)
    tl.store(steps + game, step, mask=inside)
    tl.store(returns + game, gained, mask=inside)
    sums = episodes + tl.program_id(0) * 3
    tl.store(sums, tl.sum(tl.where(inside, num_over, 0.0), 0))
    tl.store(sums + 1, tl.sum(tl.where(inside, sum_gained, 0.0), 0))
    tl.store(sums + 2, tl.sum(tl.where(inside, sum_steps, 0.0), 0))
