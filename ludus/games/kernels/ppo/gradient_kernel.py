"""One kernel for the gradient of a minibatch: forward and hand-derived backward of policy and value
network.

Half of the programs compute the policy, half the value. Each sums over its blocks of rows and writes its
own partial gradient, so that the total is summed in a fixed order.

Shapes: M rows of a block; names of padded widths as in `network.py`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ludus.games.kernels.ppo.network import await_last, layers, matrix_back, tanh
from ludus.games.kernels.ppo.rollout_kernel import ROUNDS

METRICS = tl.constexpr(8)


@triton.jit
def _policy_slopes(
    logits, action, old, advantage, clip, entropy_coef, inside, choice, Z: tl.constexpr
):
    """Return the derivative of the loss by each logit, and four sums: gain, entropy, KL, clipped."""
    logits = tl.where(choice < Z, logits, -1e30)
    shifted = logits - tl.max(logits, 1)[:, None]
    weight = tl.exp(shifted)
    total = tl.sum(weight, 1)
    log_prob = shifted - tl.log(total)[:, None]
    prob = weight / total[:, None]
    is_taken = choice == action[:, None]
    log_ratio = tl.where(inside, tl.sum(tl.where(is_taken, log_prob, 0.0), 1) - old, 0.0)
    ratio = tl.exp(log_ratio)
    bounded = tl.minimum(tl.maximum(ratio, 1.0 - clip), 1.0 + clip)
    plain = ratio * advantage
    moves = (plain <= bounded * advantage) & inside
    slope = tl.where(moves, -plain, 0.0)
    # Where a choice is padding its probability is 0 and its log-probability large, yet finite.
    entropy = -tl.sum(prob * log_prob, 1)
    slopes = slope[:, None] * (tl.where(is_taken, 1.0, 0.0) - prob)
    slopes += tl.where(inside[:, None], entropy_coef * prob * (log_prob + entropy[:, None]), 0.0)
    gain = tl.sum(tl.where(inside, tl.minimum(plain, bounded * advantage), 0.0), 0)
    bonus = tl.sum(tl.where(inside, entropy, 0.0), 0)
    kl = tl.sum(tl.where(inside, ratio - 1.0 - log_ratio, 0.0), 0)
    clipped = tl.sum(tl.where(inside & (tl.abs(ratio - 1.0) > clip), 1.0, 0.0), 0)
    return tl.where(choice < Z, slopes, 0.0), gain, bonus, kl, clipped


@triton.jit
def _value_slopes(value, old, wanted, value_clip, value_coef, inside, VALUE_CLIP: tl.constexpr):
    """Return the derivative of the loss by each value, and the sum of half the squared errors."""
    error = value - wanted
    slope = error
    square = error * error
    if VALUE_CLIP:
        moved = tl.minimum(tl.maximum(value - old, -value_clip), value_clip)
        near = old + moved - wanted
        worse = near * near
        is_free = tl.abs(value - old) <= value_clip
        # Of two equal errors torch takes half the derivative of each; within the clip they are identical.
        slope = tl.where(
            square > worse,
            error,
            tl.where(is_free, error, tl.where(square < worse, 0.0, 0.5 * error)),
        )
        square = tl.maximum(square, worse)
    slope = tl.where(inside, slope * value_coef, 0.0)
    return slope, tl.sum(tl.where(inside, 0.5 * square, 0.0), 0)


@triton.jit
def _rows(place, epoch, table, last, shift):
    """Return the rows at these places of a shuffled epoch."""
    row = place.to(tl.uint32)
    for nth in tl.static_range(ROUNDS):
        at = table + epoch * 2 * ROUNDS + nth
        factor = tl.load(at).to(tl.uint32, bitcast=True)
        term = tl.load(at + ROUNDS).to(tl.uint32, bitcast=True)
        row = (row * factor + term) & last
        row = row ^ (row >> shift)
    return row.to(tl.int32)


@triton.jit
def _slopes(
    out, record, is_policy, mean, scale, clip, value_clip, value_coef, entropy_coef, inside, choice,
    F: tl.constexpr, Z: tl.constexpr, VALUE_CLIP: tl.constexpr,
):  # fmt: skip
    """Return the derivative of the loss by each output of either network, and the sums of five metrics."""
    action = tl.load(record + F, mask=inside, other=0.0).to(tl.int32)
    old_log_prob = tl.load(record + F + 1, mask=inside, other=0.0)
    advantage = tl.load(record + F + 2, mask=inside, other=0.0)
    old_value = tl.load(record + F + 3, mask=inside, other=0.0)
    scaled = (advantage - mean) * scale
    slopes, gain, bonus, kl, clipped = _policy_slopes(
        out, action, old_log_prob, scaled, clip, entropy_coef, inside, choice, Z
    )
    value = tl.sum(tl.where(choice == 0, out, 0.0), 1)
    slope, square = _value_slopes(
        value, old_value, advantage + old_value, value_clip, value_coef, inside, VALUE_CLIP
    )
    slopes = tl.where(is_policy, slopes, tl.where(choice == 0, slope[:, None], 0.0))
    return slopes.to(tl.float16), gain, bonus, kl, clipped, square


@triton.jit(
    do_not_specialize=[
        "epoch", "minibatch", "num_minibatches", "num_updates", "num_blocks", "num_programs",
        "last", "shift", "size",
    ]
)  # fmt: skip
def gradient_kernel(
    weights, records, statistics, table, schedule, turn, partials,
    epoch, minibatch, num_minibatches, num_updates, num_blocks, num_programs, last, shift, size,
    value_clip, value_coef, entropy_coef,
    POLICY_AT: tl.constexpr, VALUE_AT: tl.constexpr, WIDTH: tl.constexpr,
    F: tl.constexpr, X: tl.constexpr, Y: tl.constexpr, Z: tl.constexpr,
    FP: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, ZP: tl.constexpr,
    R: tl.constexpr, M: tl.constexpr, VALUE_CLIP: tl.constexpr, GPU: tl.constexpr,
):  # fmt: skip
    """Write the partial gradient of each program, not yet divided by the number of rows, and its metrics."""
    await_last(GPU)
    is_policy = tl.program_id(0) < num_programs
    own = tl.program_id(0) % num_programs
    at = tl.where(is_policy, POLICY_AT, VALUE_AT)
    outputs = tl.where(is_policy, Z, 1)
    w1, b1, w2, b2, w3, b3 = layers(weights + at, outputs, F, X, Y, FP, XP, YP, ZP)
    w2_back = matrix_back(weights + at + F * X + X, X, Y, XP, YP)
    w3_back = matrix_back(weights + at + F * X + X + X * Y + Y, Y, outputs, YP, ZP)
    update = epoch * num_minibatches + minibatch
    mean = tl.load(statistics + 2 * update)
    scale = tl.load(statistics + 2 * update + 1)
    clip = tl.load(schedule + 2 * (tl.load(turn) * num_updates + update) + 1)
    column = tl.arange(0, FP)[None, :]
    choice = tl.arange(0, ZP)[None, :]
    d1 = tl.zeros([FP, XP], tl.float32)
    d2 = tl.zeros([YP, XP], tl.float32)
    d3 = tl.zeros([ZP, YP], tl.float32)
    c2 = tl.zeros([FP, YP], tl.float32)
    c3 = tl.zeros([FP, ZP], tl.float32)
    m0, m1, m2, m3, m4 = 0.0, 0.0, 0.0, 0.0, 0.0
    for block in range(own, num_blocks, num_programs):
        place = block * M + tl.arange(0, M)
        inside = place < size
        record = records + _rows(minibatch * size + place, epoch, table, last, shift) * R
        seen = inside[:, None] & (column < F)
        obs = tl.load(record[:, None] + column, mask=seen, other=0.0)
        # A column of ones: its product with a derivative is the gradient of a bias.
        obs = tl.where((column == F) & inside[:, None], 1.0, obs).to(tl.float16)
        h1 = tanh(tl.dot(obs, w1) + b1, GPU)
        n1 = h1.to(tl.float16)
        h2 = tanh(tl.dot(n1, w2) + b2, GPU)
        n2 = h2.to(tl.float16)
        g3, gain, bonus, kl, clipped, square = _slopes(
            tl.dot(n2, w3) + b3, record, is_policy, mean, scale, clip, value_clip, value_coef,
            entropy_coef, inside, choice, F, Z, VALUE_CLIP,
        )  # fmt: skip
        g2 = (tl.dot(g3, w3_back) * (1.0 - h2 * h2)).to(tl.float16)
        g1 = (tl.dot(g2, w2_back) * (1.0 - h1 * h1)).to(tl.float16)
        across = tl.trans(obs)
        d1, c2, c3 = tl.dot(across, g1, d1), tl.dot(across, g2, c2), tl.dot(across, g3, c3)
        d2, d3 = tl.dot(tl.trans(g2), n1, d2), tl.dot(tl.trans(g3), n2, d3)
        m0, m1, m2, m3, m4 = m0 + gain, m1 + bonus, m2 + kl, m3 + clipped, m4 + square
    to = partials + own * WIDTH
    _store(to + at, d1, d2, d3, c2, c3, outputs, F, X, Y, FP, XP, YP, ZP)
    _store_metrics(to + WIDTH - METRICS, is_policy, m0, m1, m2, m3, m4)


@triton.jit
def _store(
    to, d1, d2, d3, c2, c3, outputs, F: tl.constexpr, X: tl.constexpr, Y: tl.constexpr,
    FP: tl.constexpr, XP: tl.constexpr, YP: tl.constexpr, ZP: tl.constexpr,
):  # fmt: skip
    """Write a partial gradient in the order of a network's tensors; row F of d1, c2, c3 holds the biases."""
    f = tl.arange(0, FP)[:, None]
    x = tl.arange(0, XP)[None, :]
    y = tl.arange(0, YP)[None, :]
    z = tl.arange(0, ZP)[None, :]
    y_row = tl.arange(0, YP)[:, None]
    z_row = tl.arange(0, ZP)[:, None]
    tl.store(to + x * F + f, d1, mask=(f < F) & (x < X))
    to += F * X
    tl.store(to + x + 0 * f, d1, mask=(f == F) & (x < X))
    to += X
    tl.store(to + y_row * X + x, d2, mask=(y_row < Y) & (x < X))
    to += X * Y
    tl.store(to + y + 0 * f, c2, mask=(f == F) & (y < Y))
    to += Y
    tl.store(to + z_row * Y + y, d3, mask=(z_row < outputs) & (y < Y))
    to += Y * outputs
    tl.store(to + z + 0 * f, c3, mask=(f == F) & (z < outputs))


@triton.jit
def _store_metrics(to, is_policy, m0, m1, m2, m3, m4):
    """Write the sums of gain, entropy, KL and clipped rows, or that of the squared errors."""
    if is_policy:
        tl.store(to, m0)
        tl.store(to + 1, m1)
        tl.store(to + 2, m2)
        tl.store(to + 3, m3)
    else:
        tl.store(to + 4, m4)
