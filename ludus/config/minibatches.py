"""Whether the minibatches of PPO divide a rollout, asked in one place for all families."""

from __future__ import annotations

import math


def undivided(
    size: int,
    count: int,
    what: str,
    product: str,
    *,
    key: str = "minibatch_size",
    of: str = "a rollout",
) -> str:
    """Return the problem of a minibatch size that does not divide a rollout, with the nearest that does."""
    best = nearest_divisor(count, size)
    return f"'{key}' is {size}, which does not divide the {count} {what} of {of} ({product}); try {best}"


def nearest_divisor(count: int, size: int) -> int:
    """Return the divisor of a count that is nearest to a size; of two the smaller."""
    low = [one for one in range(1, math.isqrt(count) + 1) if count % one == 0]
    return min(sorted([*low, *(count // one for one in low)]), key=lambda one: abs(one - size))
