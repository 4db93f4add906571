"""Text drawings: characters on a grid whose rows are twice as high as its columns are wide."""

from __future__ import annotations

from collections.abc import Sequence

Point = tuple[float, float]


class Drawing:
    """A square grid around the origin, `size` to each side, of `rows` rows; y grows upwards."""

    def __init__(self, size: float, *, rows: int) -> None:
        self._size = size
        self._signs = [[" "] * (2 * rows - 1) for _ in range(rows)]

    def put(self, point: Point, sign: str) -> None:
        """Put a character at a point; points outside the grid are ignored."""
        rows = len(self._signs)
        column, row = (round((x / self._size + 1) / 2 * (n - 1)) for x, n in zip(
            point, (2 * rows - 1, rows), strict=True))  # fmt: skip
        if 0 <= row < rows and 0 <= column < 2 * rows - 1:
            self._signs[rows - 1 - row][column] = sign

    def line(self, start: Point, end: Point, sign: str) -> None:
        """Draw a straight line."""
        steps = 4 * len(self._signs)
        for step in range(steps + 1):
            share = step / steps
            x, y = (a + share * (b - a) for a, b in zip(start, end, strict=True))
            self.put((x, y), sign)

    def rows(self) -> Sequence[str]:
        """Return the rows from the top, without spaces at their ends."""
        return ["".join(row).rstrip() for row in self._signs]
