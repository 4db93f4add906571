"""Counter-based random numbers: a function of (seed, name, iteration, index), the same in PyTorch and in a
kernel.

There is no generator to save: the same iteration gives the same numbers again, on any device and in any
order. Shapes: B games.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from ludus.games.elementwise import ElementwiseGame
from ludus.games.game import State
from ludus.seeds import derive

WORD = 0xFFFFFFFF
# Shifts and odd factors of a bijection of 32 bits in which each bit of the input flips half of the output.
SHIFTS = (17, 11, 15, 14)
FACTORS = (0xED5AD4BB, 0xAC4C1B51, 0x31848BAB)
# The distance between the starting points of the numbers drawn from one word.
STRIDE = 0x9E3779B9


class Key(NamedTuple):
    """The key of a stream of random numbers: two words of 32 bits."""

    low: int
    high: int


def key(seed: int, name: str) -> Key:
    """Return the key of the stream of this name."""
    derived = derive(seed, name)
    return Key(derived & WORD, derived >> 32)


def words(stream: Key, iteration: Tensor, index: Tensor) -> Tensor:
    """Return a random integer below 2^32 for each index below 2^32; both are int64."""
    first = mixed((iteration + stream.low) & WORD)
    second = mixed(((first ^ (iteration >> 32)) + stream.high) & WORD)
    return mixed((mixed(index ^ first) + second) & WORD)


def uniform(word: Tensor, nth: int) -> Tensor:
    """Return a random float32 in [0, 1) for each word, a multiple of 2^-24; independent for each nth."""
    if nth:
        word = mixed((word + nth * STRIDE) & WORD)
    return (word >> 8).to(torch.float32) * 2.0**-24


def mixed(word: Tensor) -> Tensor:
    """Return the hash of each word of 32 bits, held in an int64."""
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        # The product may pass 2^63 and wrap around; its last 32 bits are still right.
        word = ((word ^ (word >> shift)) * factor) & WORD
    return word ^ (word >> SHIFTS[-1])


class Keys(NamedTuple):
    """The streams of random numbers of a run."""

    first: Key
    """The starts of the first games."""
    step: Key
    """One word per step: the draw of its action, and the start of the next game, if the step ends one."""
    shuffle: Key


def keys_of(seed: int) -> Keys:
    """Return the streams of this seed."""
    return Keys(*[key(seed, f"ppo/{name}") for name in Keys._fields])


def action_draws(words: Tensor, *, num_draws: int, num_uniforms: int) -> Tensor:
    """Return the uniform numbers of an action from each word, stacked in a new last dimension.

    The first comes from the word itself; the others follow those that a start uses.
    """
    nths = [0, *[num_uniforms + other for other in range(1, num_draws)]]
    return torch.stack([uniform(words, nth) for nth in nths], -1)


def started(game: ElementwiseGame, word_B: Tensor) -> State:
    """Return new games from a random word each."""
    return game.start(torch.stack([uniform(word_B, 1 + nth) for nth in range(game.num_uniforms)]))
