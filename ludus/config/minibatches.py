"""Whether the minibatches of PPO divide a rollout, asked in one place for all families."""

from __future__ import annotations


def undivided(size: int, count: int, what: str, product: str) -> str:
    """Return the problem of a minibatch size that does not divide a rollout, with the nearest that does."""
    near = [one for one in range(1, min(count, 4 * size) + 1) if count % one == 0]
    best = min(near, key=lambda one: abs(one - size))
    return (
        f"'minibatch_size' is {size}, which does not divide the {count} {what} of a rollout ({product});"
        f" try {best}"
    )
