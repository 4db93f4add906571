"""The random numbers of `games/ppo/counter_random.py` inside a kernel, bit-identical."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def mixed(word):
    """Return the hash of each uint32."""
    word = (word ^ (word >> 17)) * 0xED5AD4BB
    word = (word ^ (word >> 11)) * 0xAC4C1B51
    word = (word ^ (word >> 15)) * 0x31848BAB
    return word ^ (word >> 14)


@triton.jit
def stream_of(keys, place: tl.constexpr, iteration):
    """Return the two words of a key and an iteration; keys are pairs of int64 in memory."""
    low = tl.load(keys + 2 * place).to(tl.uint32)
    high = tl.load(keys + 2 * place + 1).to(tl.uint32)
    first = mixed((iteration & 0xFFFFFFFF).to(tl.uint32) + low)
    second = mixed((first ^ (iteration >> 32).to(tl.uint32)) + high)
    return first, second


@triton.jit
def words(first, second, index):
    """Return a random uint32 for each index, which is a uint32."""
    return mixed(mixed(index ^ first) + second)


@triton.jit
def uniform(word, nth: tl.constexpr):
    """Return a random float32 in [0, 1) for each word; independent for each nth."""
    if nth > 0:
        word = mixed(word + ((nth * 0x9E3779B9) & 0xFFFFFFFF))
    return (word >> 8).to(tl.float32) * 5.9604644775390625e-08
