"""Kernels that sum partial gradients, clip, take an Adam step, and finish an iteration.

Shapes: P parameters, G programs of the gradient kernel.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ludus.games.kernels.ppo.gradient_kernel import METRICS
from ludus.games.kernels.ppo.network import await_last


@triton.jit(do_not_specialize=["num_programs"])
def reduce_kernel(
    partials, gradient, squares, num_parameters, grad_scale, num_programs,
    WIDTH: tl.constexpr, GP: tl.constexpr, P: tl.constexpr, GPU: tl.constexpr,
):  # fmt: skip
    """Write the mean gradient, the metrics after it, and the sum of squares of each program's slice."""
    await_last(GPU)
    place = tl.program_id(0) * P + tl.arange(0, P)
    inside = place < WIDTH
    total = tl.zeros([P], tl.float32)
    for start in range(0, num_programs, GP):
        program = start + tl.arange(0, GP)[:, None]
        at = partials + program * WIDTH + place[None, :]
        total += tl.sum(tl.load(at, mask=(program < num_programs) & inside[None, :], other=0.0), 0)
    total = total * grad_scale
    tl.store(gradient + place, total, mask=inside)
    counted = tl.where(place < num_parameters, total, 0.0)
    tl.store(squares + tl.program_id(0), tl.sum(counted * counted, 0))


@triton.jit(do_not_specialize=["update", "num_updates"])
def adam_kernel(
    weights, first, second, gradient, squares, progress, schedule, turn, metrics, log_betas, update,
    num_updates, num_parameters, max_norm, one_less_beta1, beta2, one_less_beta2, eps, decay,
    WIDTH: tl.constexpr, NS: tl.constexpr, SP: tl.constexpr, P: tl.constexpr,
    CLIPPED: tl.constexpr, DECOUPLED: tl.constexpr, GPU: tl.constexpr,
):  # fmt: skip
    """Take one step along the clipped gradient, unless it is not finite.

    `progress` holds the number of steps taken before each update of the iteration; it is read and written
    in different places, so programs need not wait for each other.
    """
    await_last(GPU)
    index = tl.arange(0, SP)
    norm = tl.sqrt(tl.sum(tl.load(squares + index, mask=index < NS, other=0.0), 0))
    num_steps = tl.load(progress + update) + 1.0
    # 1 - beta^n in float64: in float32 it loses half its digits at the first steps.
    short1 = (1.0 - tl.exp(num_steps.to(tl.float64) * tl.load(log_betas))).to(tl.float32)
    short2 = (1.0 - tl.exp(num_steps.to(tl.float64) * tl.load(log_betas + 1))).to(tl.float32)
    rate = tl.load(schedule + 2 * (tl.load(turn) * num_updates + update))
    place = tl.program_id(0) * P + tl.arange(0, P)
    inside = place < num_parameters
    moves = tl.where(inside, norm, float("inf")) < float("inf")
    weight = tl.load(weights + place, mask=inside, other=0.0)
    slope = tl.load(gradient + place, mask=inside, other=0.0)
    if CLIPPED:
        slope = slope / tl.maximum(norm / max_norm, 1.0)
    moved = weight
    if DECOUPLED:
        moved = weight * (1.0 - rate * decay)
    else:
        slope = slope + decay * weight
    m = tl.load(first + place, mask=inside, other=0.0)
    v = tl.load(second + place, mask=inside, other=0.0)
    m = m + one_less_beta1 * (slope - m)
    v = beta2 * v + one_less_beta2 * slope * slope
    moved = moved - (rate / short1) * m / (tl.sqrt(v) / tl.sqrt(short2) + eps)
    tl.store(weights + place, moved, mask=moves)
    tl.store(first + place, m, mask=moves)
    tl.store(second + place, v, mask=moves)
    if tl.program_id(0) == 0:
        tl.store(progress + update + 1, tl.where(norm < float("inf"), num_steps, num_steps - 1.0))
        at = tl.arange(0, METRICS)
        found = tl.load(gradient + WIDTH - METRICS + at)
        found = tl.where(at == METRICS - 1, norm, found)
        tl.store(metrics + update * METRICS + at, found)


@triton.jit
def finish_kernel(
    iteration, turn, progress, num_steps, metrics, episodes, totals, num_programs,
    NU: tl.constexpr, UP: tl.constexpr, GP: tl.constexpr, GPU: tl.constexpr,
):  # fmt: skip
    """Count the iteration, keep the number of steps, and add metrics and episodes to the totals."""
    await_last(GPU)
    tl.store(iteration, tl.load(iteration) + 1)
    tl.store(turn, tl.load(turn) + 1)
    steps = tl.load(progress + NU)
    tl.store(progress, steps)
    tl.store(num_steps, steps)
    at = tl.arange(0, METRICS)
    update = tl.arange(0, UP)[:, None]
    found = tl.load(metrics + update * METRICS + at[None, :], mask=update < NU, other=0.0)
    tl.store(totals + at, tl.load(totals + at) + tl.sum(found, 0) / NU)
    for which in tl.static_range(3):
        total = 0.0
        for start in range(0, num_programs, GP):
            program = start + tl.arange(0, GP)
            inside = program < num_programs
            total += tl.sum(tl.load(episodes + program * 3 + which, mask=inside, other=0.0), 0)
        at_total = totals + METRICS + which
        tl.store(at_total, tl.load(at_total) + total)
