"""One kernel that plays all steps of a rollout: the game's own step and the policy's network inlined.

A record is a row of floats: F features, the action, its log-probability, and two numbers: here the reward and
a flag (1 ended, 2 truncated), later the advantage and the value.

Shapes: E games of a program, T steps, B games; names of padded widths as in `network.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ludus.games.kernels.counter_draws import stream_of, uniform, words
from ludus.games.kernels.ppo.network import await_last, layers, outputs_of

ROUNDS = tl.constexpr(4)


@triton.jit
def shuffle_constants(keys, iteration, table, CP: tl.constexpr):
    """Write the factors, terms and inverse factors of the shuffles of an iteration."""
    first, second = stream_of(keys, 2, iteration)
    index = tl.arange(0, CP)
    word = words(first, second, index.to(tl.uint32))
    is_factor = index % (2 * ROUNDS) < ROUNDS
    word = tl.where(is_factor, word | 1, word)
    inverse = word
    for _ in tl.static_range(5):
        inverse = inverse * (2 - word * inverse)
    tl.store(table + index, word.to(tl.int32, bitcast=True))
    tl.store(table + CP + index, inverse.to(tl.int32, bitcast=True))


@triton.jit
def _draws(word, U: tl.constexpr):
    """Return the uniform numbers of a start."""
    draws = ()
    for i in tl.static_range(U):
        draws = draws + (uniform(word, i + 1),)  # type: ignore[assignment]  # noqa: RUF005
    return draws


@triton.jit
def _tile(columns, column, COUNT: tl.constexpr, E: tl.constexpr, FP: tl.constexpr):
    """Return (E, FP) vectors side by side, padded with 0."""
    tile = tl.zeros([E, FP], tl.float32)
    for i in tl.static_range(COUNT):
        tile = tl.where(column == i, columns[i][:, None], tile)
    return tile


@triton.jit
def _choose(logits, drawn, choice, Z: tl.constexpr):
    """Return the action that a uniform number draws, and its log-probability."""
    each = ()
    top = tl.max(tl.where(choice < Z, logits, -1e30), 1)
    for z in tl.static_range(Z):
        logit = tl.sum(tl.where(choice == z, logits, 0.0), 1)
        each = each + (logit - top,)  # type: ignore[assignment]  # noqa: RUF005
    total = tl.exp(each[0])  # type: ignore[misc]
    for z in tl.static_range(1, Z):
        total += tl.exp(each[z])
    bound = drawn * total
    below = tl.zeros_like(drawn)
    action = tl.zeros_like(drawn).to(tl.int32)
    for z in tl.static_range(Z - 1):
        below += tl.exp(each[z])
        action += (below <= bound).to(tl.int32)
    taken = each[0]  # type: ignore[misc]
    for z in tl.static_range(1, Z):
        taken = tl.where(action == z, each[z], taken)
    return action, taken - tl.log(total)


@triton.jit
def _select(is_so, then, otherwise, S: tl.constexpr):
    """Return the numbers of one state where a condition holds, and of the other elsewhere."""
    chosen = ()
    for i in tl.static_range(S):
        one = tl.where(is_so, then[i], otherwise[i])
        chosen = chosen + (one,)  # type: ignore[assignment]  # noqa: RUF005
    return chosen


@triton.jit
def _read(numbers, game, inside, S: tl.constexpr):
    """Return the numbers of a state, one vector each."""
    state = ()
    for i in tl.static_range(S):
        number = tl.load(numbers + game * S + i, mask=inside, other=0.0)
        state = state + (number,)  # type: ignore[assignment]  # noqa: RUF005
    return state


@triton.jit(do_not_specialize=["num_games", "num_steps", "max_steps"])
def rollout_kernel(
    numbers, steps, returns, weights, records, finals, episodes,
    keys, iteration_at, table, num_games, num_steps, max_steps,
    begin: tl.constexpr, features: tl.constexpr, advance: tl.constexpr,
    S: tl.constexpr, U: tl.constexpr, F: tl.constexpr, X: tl.constexpr, Y: tl.constexpr,
    Z: tl.constexpr, FP: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, ZP: tl.constexpr,
    R: tl.constexpr, E: tl.constexpr, CP: tl.constexpr, GPU: tl.constexpr,
):  # fmt: skip
    """Play; write one record per step, and the last observations of truncated games."""
    await_last(GPU)
    iteration = tl.load(iteration_at)
    if tl.program_id(0) == 0:
        shuffle_constants(keys, iteration, table, CP)
    game = tl.program_id(0) * E + tl.arange(0, E)
    inside = game < num_games
    column = tl.arange(0, FP)[None, :]
    choice = tl.arange(0, ZP)[None, :]
    w1, b1, w2, b2, w3, b3 = layers(weights, Z, F, X, Y, FP, XP, YP, ZP)
    first, second = stream_of(keys, 1, iteration)
    state = _read(numbers, game, inside, S)
    step = tl.load(steps + game, mask=inside, other=0)
    gained = tl.load(returns + game, mask=inside, other=0.0)
    num_over = tl.zeros([E], tl.float32)
    sum_gained = tl.zeros([E], tl.float32)
    sum_steps = tl.zeros([E], tl.float32)
    for t in range(num_steps):
        row = t * num_games + game
        word = words(first, second, row.to(tl.uint32))
        fresh = begin(*_draws(word, U))
        obs = _tile(features(*state), column, F, E, FP)
        logits = outputs_of(obs, w1, b1, w2, b2, w3, b3, GPU)
        action, log_prob = _choose(logits, uniform(word, 0), choice, Z)
        outcome = advance(*state, action)
        reward = tl.zeros([E], tl.float32) + outcome[S]
        step += 1
        truncated = (step >= max_steps) & (outcome[S + 1] == 0)
        over = (outcome[S + 1] != 0) | truncated
        flag = tl.where(truncated, 2.0, tl.where(over, 1.0, 0.0))
        record = _tile((action.to(tl.float32), log_prob, reward, flag), column - F, 4, E, FP) + obs
        at = records + row[:, None] * R + column
        tl.store(at, record, mask=inside[:, None] & (column < F + 4))
        if tl.max(step, 0) >= max_steps:
            last = _tile(features(*outcome[:S]), column, F, E, FP)
            at = finals + row[:, None] * F + column
            tl.store(at, last, mask=(inside & truncated)[:, None] & (column < F))
        gained += reward
        num_over += tl.where(over, 1.0, 0.0)
        sum_gained += tl.where(over, gained, 0.0)
        sum_steps += tl.where(over, step.to(tl.float32), 0.0)
        gained = tl.where(over, 0.0, gained)
        step = tl.where(over, 0, step)
        state = _select(over, fresh, outcome, S)
    _leave(
        numbers, steps, returns, records + num_steps * num_games * R, episodes, game, inside,
        state, features(*state), step, gained, num_over, sum_gained, sum_steps, S, F, R,
    )  # fmt: skip


@triton.jit
def _leave(
    numbers, steps, returns, records, episodes, game, inside, state, seen, step, gained,
    num_over, sum_gained, sum_steps, S: tl.constexpr, F: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """Write the states and observations of the games, and the sums of the finished episodes."""
    for i in tl.static_range(F):
        tl.store(records + game * R + i, seen[i], mask=inside)
    for i in tl.static_range(S):
        tl.store(numbers + game * S + i, state[i], mask=inside)
    tl.store(steps + game, step, mask=inside)
    tl.store(returns + game, gained, mask=inside)
    sums = episodes + tl.program_id(0) * 3
    tl.store(sums, tl.sum(tl.where(inside, num_over, 0.0), 0))
    tl.store(sums + 1, tl.sum(tl.where(inside, sum_gained, 0.0), 0))
    tl.store(sums + 2, tl.sum(tl.where(inside, sum_steps, 0.0), 0))
