"""Minibatches of a rollout: a shuffle by a bijection, without a sort.

For a power of two of rows, 2^k, a few rounds of multiply, add and xorshift modulo 2^k map each place in the
shuffled order to a row and, inversely, each row to its place. Other numbers of rows are sorted by random
words.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ludus.data.replay.pending import MinibatchOrder
from ludus.games.ppo.counter_random import Key, words

ROUNDS = 4


def minibatch_order(
    stream: Key, device: torch.device, num_rows: int, num_minibatches: int
) -> MinibatchOrder:
    """Return the rows of each minibatch of a rollout, reshuffled in each epoch of each round."""

    def order(iteration: int, epoch: int) -> Tensor:
        number = torch.tensor(iteration, device=device)
        return rows_in_order(stream, number, epoch, num_rows=num_rows)

    return MinibatchOrder(order, num_rows // num_minibatches)


def rows_in_order(stream: Key, iteration: Tensor, epoch: int, *, num_rows: int) -> Tensor:
    """Return (num_rows,) the rows of an epoch in the order in which its minibatches take them."""
    places = torch.arange(num_rows, device=iteration.device)
    if num_rows & (num_rows - 1):
        # The row is in the last bits, so that ties between words do not make the order device-dependent.
        word = words(stream, iteration, places + epoch * num_rows) & 0x7FFFFFFF
        return (word << 32 | places).sort().values & 0xFFFFFFFF
    factors, terms = constants(stream, iteration, epoch)
    rows, last = places, num_rows - 1
    for factor, term in zip(factors, terms, strict=True):
        rows = (rows * factor + term) & last
        rows = rows ^ (rows >> half(num_rows))
    return rows


def constants(stream: Key, iteration: Tensor, epoch: int) -> tuple[Tensor, Tensor]:
    """Return the factor, which is odd, and the term of each round, below 2^32."""
    first = epoch * 2 * ROUNDS
    index = torch.arange(first, first + 2 * ROUNDS, device=iteration.device)
    factors, terms = words(stream, iteration, index).split(ROUNDS)
    return factors | 1, terms


def half(num_rows: int) -> int:
    """Return the shift of a round: at least half of the bits, so that applying it twice undoes it."""
    return (num_rows.bit_length()) // 2
