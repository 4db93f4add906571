"""The vertices of a Newton polyhedron beside a slow version in whole numbers, where float64 ends."""

from __future__ import annotations

import math
from collections.abc import Collection
from unittest.mock import patch

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from torch import Tensor

from ludus.games.hironaka import polyhedra
from ludus.games.hironaka.exact import is_vertex
from ludus.games.hironaka.newton import drop_dominated
from ludus.games.hironaka.polyhedra import rescale, vertices
from ludus.games.hironaka.vertices import drop_non_vertices, judged

Point = tuple[int, ...]


def stands_out(point: Point, others: Collection[Point]) -> bool:
    """Return whether weights above 0 make the point less than all others, by Fourier-Motzkin elimination.

    Each row r says that sum(r_k w_k) > 0; a row of zeros that follows from them says that there are no w.
    """
    rows = {tuple(b - a for a, b in zip(point, other, strict=True)) for other in others}
    rows |= {tuple(int(k == axis) for k in range(len(point))) for axis in range(len(point))}
    for axis in range(len(point)):
        kept = {row for row in rows if row[axis] == 0}
        for above in (row for row in rows if row[axis] > 0):
            for below in (row for row in rows if row[axis] < 0):
                sums = [
                    above[axis] * y - below[axis] * x for x, y in zip(above, below, strict=True)
                ]
                kept.add(tuple(x // (math.gcd(*sums) or 1) for x in sums))
        rows = kept
    return not any(not any(row) for row in rows)


def slow_vertices(rows: Collection[Point]) -> set[Point]:
    own = set(rows)
    below = {p for p in own if any(p != q and all(map(int.__ge__, p, q)) for q in own)}
    return {p for p in own - below if stands_out(p, own - below - {p})}


def left(points_ND: Tensor) -> set[Point]:
    return {tuple(int(x) for x in row) for row in points_ND.tolist() if row[0] >= 0}


def num_left(points_BND: Tensor) -> int:
    return int((points_BND[..., 0] >= 0).sum())


@st.composite
def hard_points(draw: st.DrawFn, greatest: int, dimensions: tuple[int, ...] = (2, 3, 4)) -> Tensor:
    """Draw one game of points that lie near a plane, where vertices stand out by little."""
    dimension = draw(st.sampled_from(dimensions))
    size = draw(st.integers(1, greatest))
    rows = []
    for _ in range(draw(st.integers(1, 7 if dimension < 4 else 6))):
        cuts = sorted(draw(st.integers(0, size)) for _ in range(dimension - 1))
        parts = [high - low for low, high in zip([0, *cuts], [*cuts, size], strict=True)]
        axis, off = draw(st.integers(0, dimension - 1)), draw(st.integers(-1, 1))
        parts[axis] = min(max(parts[axis] + off, 0), greatest)
        rows.append(parts)
    return torch.tensor([rows], dtype=torch.float64)


@pytest.mark.covers("001-D14")
@given(hard_points(2**20))
@example(torch.tensor([[[0.0, 29989.0], [30011.0, 0.0], [9549.0, 20447.0]]], dtype=torch.float64))
@settings(max_examples=150, deadline=None, derandomize=True, database=None)
def test_vertices_of_whole_numbers_up_to_a_million_are_exact(points: Tensor) -> None:
    wanted = slow_vertices([tuple(map(int, row)) for row in points[0].tolist()])
    assert left(vertices(points)[0]) == wanted
    assert left(vertices(points.float())[0]) == wanted


@given(hard_points(10**25))
@settings(max_examples=60, deadline=None, derandomize=True, database=None)
def test_whole_numbers_that_float64_rounds_are_taken_for_what_they_are(points: Tensor) -> None:
    assert left(vertices(points)[0]) == slow_vertices(left(points[0]))


@pytest.mark.parametrize(
    ("dimension", "greatest", "greatest_float32"), [(2, 2**20, 350), (3, 2**13, 30), (4, 500, 10)]
)
def test_float64_alone_decides_whole_numbers_and_scaled_ones_as_far_as_docs_say(
    dimension: int, greatest: int, greatest_float32: int
) -> None:
    @given(hard_points(greatest, (dimension,)), hard_points(greatest_float32, (dimension,)))
    @settings(max_examples=60, deadline=None, derandomize=True, database=None)
    def decided(points: Tensor, small: Tensor) -> None:
        wanted = slow_vertices(left(points[0]))
        assert left(drop_non_vertices(points)[0]) == wanted
        assert not judged(drop_dominated(points)).is_doubtful.any()
        assert num_left(drop_non_vertices(rescale(points))) == len(wanted)
        assert num_left(vertices(rescale(small.float()))) == len(slow_vertices(left(small[0])))

    decided()


def test_only_what_float64_leaves_in_doubt_is_decided_on_the_host() -> None:
    size = 2.0**26
    easy = [[0.0, 4.0], [2.0, 2.0], [4.0, 0.0]]
    line = [[0.0, size], [size / 2, size / 2], [size, 0.0]]
    off = [[0.0, size], [size / 2 + 1, size / 2 - 2], [size, 0.0]]
    points = torch.tensor([easy, line, off], dtype=torch.float64)
    assert judged(points).is_doubtful.nonzero().tolist() == [[1, 1]]
    with patch.object(polyhedra, "is_vertex", wraps=is_vertex) as asked:
        kept = vertices(points)
    assert asked.call_count == 1
    assert (kept[:, 1, 0] >= 0).tolist() == [False, False, True]


@given(hard_points(50))
@settings(max_examples=100, deadline=None, derandomize=True, database=None)
def test_whole_numbers_on_the_host_agree_with_the_slow_version(points: Tensor) -> None:
    rows = sorted(left(points[0]))
    for at, point in enumerate(rows):
        others = rows[:at] + rows[at + 1 :]
        assert is_vertex(point, others) == stands_out(point, others)


def test_where_no_number_may_be_read_the_vertices_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    draws = torch.Generator().manual_seed(0)
    points = torch.randint(12, (60, 14, 3), generator=draws).float()
    points[::4, ::3], points[5] = -1.0, -1.0
    wanted = drop_non_vertices(points)
    scaled = drop_non_vertices(rescale(points))
    monkeypatch.setattr("ludus.games.hironaka.vertices._may_be_read", lambda tensor: False)
    assert torch.equal(drop_non_vertices(points), wanted)
    assert torch.equal(drop_non_vertices(rescale(points)), scaled)
    assert (wanted[..., 0] >= 0).sum() < (drop_dominated(points)[..., 0] >= 0).sum()
