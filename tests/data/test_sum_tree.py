"""The sum tree: it follows from its leaves bit by bit, and finds what a slow search finds."""

from __future__ import annotations

import numpy as np
import pytest

from ludus.core.errors import LudusError
from ludus.data.replay.sum_tree import SumTree


def assert_same(one: SumTree, two: SumTree) -> None:
    """Check that two trees are the same in every bit of every level."""
    for levels in ("_sums", "_leasts"):
        for left, right in zip(getattr(one, levels), getattr(two, levels), strict=True):
            assert left.tobytes() == right.tobytes()
    assert (one.total, one.minimum) == (two.total, two.minimum)


@pytest.mark.covers("004-D9")
@pytest.mark.parametrize("capacity", [100, 70_000])
def test_a_tree_updated_step_by_step_is_the_one_built_from_its_leaves(capacity: int) -> None:
    # Running differences in short floats drift.
    random = np.random.default_rng(0)
    tree, plain = SumTree(capacity), np.zeros(capacity)
    for _ in range(500):
        count = int(random.choice([1, 20, 128]))
        places = random.integers(0, capacity, count) if count > 1 else np.array([capacity - 1])
        # One place stands many times in a call.
        places[: count // 4] = places[0]
        values = random.exponential(size=count) * 10.0 ** random.integers(-8, 8, count)
        tree.set(places, values)
        for place, value in zip(places, values, strict=True):
            plain[place] = value
    built = SumTree(capacity)
    built.rebuild(tree.leaves)
    assert tree.leaves.tobytes() == plain.tobytes()
    assert_same(tree, built)
    assert tree.total == pytest.approx(plain.sum(), rel=1e-12)
    assert tree.minimum == plain[plain > 0].min()


@pytest.mark.covers("004-S3")
@pytest.mark.parametrize("capacity", [1, 2, 16, 17, 300, 4096, 4097, 70_000])
def test_it_finds_what_a_search_of_the_running_sum_finds(capacity: int) -> None:
    random = np.random.default_rng(1)
    # Whole numbers are summed without rounding, so the two searches must agree everywhere.
    values = random.integers(0, 4, capacity).astype(float)
    values[0] = 2
    tree = SumTree(capacity)
    tree.rebuild(values)
    sums = np.concatenate([np.arange(min(tree.total, 500)), random.uniform(0, tree.total, 500)])
    expected = np.searchsorted(np.cumsum(values), sums, side="right")
    np.testing.assert_array_equal(tree.find(sums), expected)


def test_it_never_finds_an_empty_place_whatever_is_asked() -> None:
    random = np.random.default_rng(2)
    for capacity in (1, 5, 40, 5000):
        tree = SumTree(capacity)
        filled = random.choice(capacity, size=-(-capacity // 3), replace=False)
        tree.set(filled, random.uniform(1e-12, 1e12, len(filled)) ** random.integers(1, 3))
        edges = np.cumsum(tree.leaves)
        asked = np.concatenate([edges, np.nextafter(edges, 0), [0.0, tree.total, 2 * tree.total]])
        found = tree.find(asked)
        assert set(found.tolist()) <= set(filled.tolist())


def test_a_place_set_to_zero_is_not_found_any_more() -> None:
    tree = SumTree(5)
    tree.set(np.array([0, 3, 4]), np.array([1.0, 2.0, 1.0]))
    tree.set(np.array([3]), np.array([0.0]))
    assert tree.find(np.linspace(0, 2, 9, endpoint=False)).tolist() == [0] * 5 + [4] * 4
    assert tree.minimum == 1.0


@pytest.mark.parametrize("value", [float("nan"), -1.0, float("inf")])
def test_a_number_that_is_no_priority_is_refused_and_changes_nothing(value: float) -> None:
    tree = SumTree(3)
    tree.set(np.array([1]), np.array([2.0]))
    with pytest.raises(LudusError, match=f"a priority is {value}"):
        tree.set(np.array([0, 1]), np.array([1.0, value]))
    with pytest.raises(LudusError, match=f"a priority is {value}"):
        tree.set(np.array([0, 1, 2]), np.array([0.0, 0.5, value]))
    assert tree.leaves.tolist() == [0.0, 2.0, 0.0]


def test_nothing_is_found_in_an_empty_tree() -> None:
    with pytest.raises(LudusError, match="every priority is 0"):
        SumTree(3).find(np.array([0.0]))


def test_a_sum_that_rounds_above_the_running_sum_still_leads_to_a_place_that_is_filled() -> None:
    random = np.random.default_rng(3)
    places = np.arange(16)
    for row in random.uniform(0.1, 1.0, (200, 16)):
        row[0] = 0.0
        if np.add.reduce(row[None], axis=1)[0] > np.add.accumulate(row)[-1]:
            break
    else:
        pytest.fail("no such row was found")
    tree = SumTree(5000)
    tree.set(places, row)
    assert tree.find(np.nextafter(np.array([tree.total]), 0)).tolist() == [15]
