"""One uniform number a token, from a counter-based stream: the key of a sample, and the token's position.

Nothing is kept between draws, so no number depends on what else is sampled. (SplitMix64.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ludus.core.derived_seed import derive

_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_BITS = 24


def stream_key(seed: int, sample: int) -> int:
    """Return the key of a sample's stream."""
    return derive(seed, "sample", sample)


def uniforms(keys: NDArray[np.uint64], positions: NDArray[Any]) -> NDArray[np.float32]:
    """Return the number in [0, 1) of each stream at its position, in steps of 2**-24."""
    mixed = keys + (positions.astype(np.uint64) + np.uint64(1)) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    mixed ^= mixed >> np.uint64(31)
    scaled: NDArray[np.float32] = (mixed >> np.uint64(64 - _BITS)).astype(np.float32)
    scaled *= np.float32(2.0**-_BITS)
    return scaled
