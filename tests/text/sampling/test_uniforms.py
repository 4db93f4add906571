"""Random numbers follow from (seed, sample, position) alone."""

from __future__ import annotations

import numpy as np

from ludus.text.sampling.uniforms import stream_key, uniforms


def splitmix(key: int, position: int) -> float:
    """Return the number as the published generator computes it, in Python's own whole numbers."""
    mask = 2**64 - 1
    mixed = (key + (position + 1) * 0x9E3779B97F4A7C15) & mask
    mixed = ((mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9) & mask
    mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & mask
    return ((mixed ^ (mixed >> 31)) >> 40) / 2**24


def test_numbers_are_those_of_splitmix64() -> None:
    keys = [0, 1, 2**63 + 5, stream_key(7, 3)]
    for position in (0, 1, 1000):
        found = uniforms(np.asarray(keys, dtype=np.uint64), np.full(4, position))
        assert found.tolist() == [splitmix(key, position) for key in keys]


def test_the_generator_gives_its_published_numbers() -> None:
    # The first output for state 0 is e220a8397b1dcdaf.
    assert uniforms(np.zeros(1, dtype=np.uint64), np.zeros(1)).tolist() == [0xE220A8 / 2**24]


def test_streams_of_other_seeds_and_samples_are_unrelated_and_uniform() -> None:
    keys = np.asarray(
        [stream_key(seed, i) for seed in range(40) for i in range(5)], dtype=np.uint64
    )
    found = np.stack([uniforms(keys, np.full(200, position)) for position in range(50)])
    assert len(set(keys.tolist())) == 200
    assert found.min() >= 0
    assert found.max() < 1
    # 10,000 numbers: the mean varies by 0.003.
    assert abs(found.mean() - 0.5) < 0.012
    assert abs(np.corrcoef(found[:, 0], found[:, 1])[0, 1]) < 0.6
    assert abs(np.corrcoef(found[:-1].ravel(), found[1:].ravel())[0, 1]) < 0.04
