"""Random numbers by seed, name, iteration and index."""

from __future__ import annotations

import torch

from ludus.games.ppo.counter_random import FACTORS, SHIFTS, STRIDE, key, uniform, words


def mix(word: int) -> int:
    word %= 2**32
    for shift, factor in zip(SHIFTS, FACTORS, strict=False):
        word = (word ^ word >> shift) * factor % 2**32
    return word ^ word >> SHIFTS[-1]


def by_hand(low: int, high: int, iteration: int, index: int) -> int:
    """The same in whole numbers of Python, which never overflow."""

    first = mix(iteration + low)
    second = mix((first ^ iteration >> 32) + high)
    return mix(mix(index ^ first) + second)


def drawn(iteration: int, nth: int = 0, name: str = "some") -> torch.Tensor:
    return uniform(words(key(5, name), torch.tensor(iteration), torch.arange(4096)), nth)


def test_the_words_are_those_of_arithmetic_without_overflow() -> None:
    stream = key(7, "some")
    for iteration in (0, 1, 12345, 2**32 + 1, 2**40):
        index = [0, 1, 77, 2**31 + 5, 2**32 - 1]
        found = words(stream, torch.tensor(iteration), torch.tensor(index))
        assert found.tolist() == [by_hand(*stream, iteration, i) for i in index]


def test_the_numbers_of_a_word_are_the_word_itself_and_others_after_it() -> None:
    word = torch.tensor([0, 5, 2**32 - 1])
    assert uniform(word, 0).tolist() == [(w >> 8) / 2**24 for w in word.tolist()]
    for nth in (1, 2, 300):
        wanted = [(mix(w + nth * STRIDE) >> 8) / 2**24 for w in word.tolist()]
        assert uniform(word, nth).tolist() == wanted


def test_uniform_numbers_are_even_and_unlike_their_neighbours() -> None:
    numbers = torch.stack([drawn(iteration // 4, iteration % 4) for iteration in range(64)])
    assert float(numbers.min()) >= 0.0
    assert float(numbers.max()) < 1.0
    counts = torch.histc(numbers, 64, 0.0, 1.0)
    # Chi squared over 64 cells: 63 on the average, with a deviation of 11.
    assert float(((counts - 4096) ** 2 / 4096).sum()) < 63 + 4 * 11
    for other in (numbers.roll(1, 0), numbers.roll(1, 1), numbers.roll(32, 1)):
        together = torch.corrcoef(torch.stack([numbers.flatten(), other.flatten()]))[0, 1]
        assert abs(float(together)) < 0.01


def test_no_iteration_and_no_name_draws_the_numbers_of_another() -> None:
    own = set(drawn(3).tolist())
    others = drawn(4), drawn(3, 1), drawn(3, name="another"), drawn(3 + 2**32)
    for other in others:
        # Some of 2^24 values coincide by chance: one of 4096 x 4096 / 2^24.
        assert len(own & set(other.tolist())) < 16
