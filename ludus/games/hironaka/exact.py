"""Exact test whether a point is a vertex of a Newton polyhedron, in integers of any size.

This is for the few points that float64 leaves undecided (`vertices.py` explains the mathematics): it works
on the host, one point at a time.
"""

from __future__ import annotations

from collections.abc import Sequence

Row = list[int]


def is_vertex(point: Sequence[int], others: Sequence[Sequence[int]]) -> bool:
    """Return whether no convex combination of the others is at most the point in every coordinate.

    The fraction-free simplex method: each tableau has integers over a common divisor, the last pivot, by
    which every new entry can be divided. Bland's rule prevents cycling.
    """
    if not others:
        return True
    dimension, count = len(point), len(others)
    paid = [[q[k] - point[k] for q in others] for k in range(dimension)]
    offset = 1 - min(map(min, paid))
    tableau = [
        [x + offset for x in row] + [int(k == slack) for slack in range(dimension)] + [1]
        for k, row in enumerate(paid)
    ]
    gains, divisor = [1] * count + [0] * (dimension + 1), 1
    basis = list(range(count, count + dimension))
    while (column := next((c for c, gain in enumerate(gains[:-1]) if gain > 0), -1)) >= 0:
        row = _leaving(tableau, basis, column)
        pivot = tableau[row][column]
        rows = [*tableau, gains]
        for other in rows:
            if other is not tableau[row]:
                _eliminate(other, tableau[row], column, divisor)
        basis[row], divisor = column, pivot
    # The sum of y is -gains[-1] / divisor, the value of the game is its inverse without the offset.
    return divisor > offset * -gains[-1]


def _leaving(tableau: list[Row], basis: Row, column: int) -> int:
    """Return the row of the least ratio of right-hand side and entry; ties go to the first variable."""
    best = -1
    for row, entries in enumerate(tableau):
        if entries[column] <= 0:
            continue
        if best >= 0:
            mine = entries[-1] * tableau[best][column]
            least = tableau[best][-1] * entries[column]
            if mine > least or (mine == least and basis[row] > basis[best]):
                continue
        best = row
    return best


def _eliminate(entries: Row, by: Row, column: int, divisor: int) -> None:
    factor, pivot = entries[column], by[column]
    for c, entry in enumerate(entries):
        entries[c] = (entry * pivot - factor * by[c]) // divisor
