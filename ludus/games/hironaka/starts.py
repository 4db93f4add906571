"""Given, rather than random, starts of Hironaka's game.

Shapes: N points, D dimension. A missing point is a row of -1.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Protocol

import torch
from pydantic import Field
from torch import Tensor

from ludus.config.base import Count
from ludus.core.errors import LudusError
from ludus.games.hironaka.newton import PADDING

Start = Annotated[list[list[Count]], Field(min_length=2)]
"""The points of one game, a list of coordinates each."""
Starts = Annotated[list[Start], Field(min_length=1)]


class Size(Protocol):
    """The size of the games."""

    @property
    def dimension(self) -> int: ...
    @property
    def max_num_points(self) -> int: ...
    @property
    def max_value(self) -> int: ...


def start_problems(starts: Sequence[Sequence[Sequence[int]]] | None, size: Size) -> Iterator[str]:
    """Yield a sentence for each start that does not fit games of this size."""
    for number, points in enumerate(starts or ()):
        if (wrong := _why_not(points, size)) is not None:
            yield f"start {number} of 'starts' has {wrong}"
        elif (most := max(x for point in points for x in point)) > size.max_value:
            yield (
                f"start {number} of 'starts' has a coordinate of {most}; 'max_value' is {size.max_value}, so"
                " raise it"
            )


def padded(points: object, size: Size) -> Tensor:
    """Return (N, D) the points of one game, followed by padding; raise LudusError unless they fit."""
    try:
        given = torch.as_tensor(points, dtype=torch.float32)
    except (TypeError, ValueError, RuntimeError):
        given = torch.zeros(0)
    if given.ndim != 2:
        raise LudusError(
            f"'points' is {points!r}; give a list of points, {size.dimension} coordinates each"
        )
    if (wrong := _why_not(given.tolist(), size)) is not None:
        raise LudusError(f"'points' has {wrong}")
    missing = size.max_num_points - len(given)
    return torch.cat([given, given.new_full((missing, size.dimension), PADDING)])


def _why_not(points: Sequence[Sequence[float]], size: Size) -> str | None:
    """Return a short reason why these points do not fit a game, with the remedy; None if they do."""
    for point in points:
        if len(point) != size.dimension:
            return f"a point of {len(point)} coordinates; 'dimension' is {size.dimension}"
    if len(points) > size.max_num_points:
        return f"{len(points)} points; 'max_num_points' is {size.max_num_points}, so raise it"
    return None
