"""Cursor: the position of a run in its plan, as a short JSON list of the open loops and the next node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ludus.core.errors import PlanError, nearest
from ludus.core.plan import Repeat


@dataclass(slots=True)
class Frame:
    """One entry of a cursor: a node, its current round, and the number of rounds of its loop."""

    name: str
    index: int = 0
    total: int | None = None


Cursor = list[Frame]


def to_json(cursor: Sequence[Frame]) -> list[list[Any]]:
    """Return the cursor as `[name, round, rounds]` triples, outermost first."""
    return [[frame.name, frame.index, frame.total] for frame in cursor]


def from_json(rows: object, plan: Repeat) -> Cursor:
    """Read a saved cursor; raise PlanError if this plan has no such position."""
    if not isinstance(rows, list):
        raise PlanError(f"a cursor is a list of [name, round, rounds], not {rows!r}")
    cursor = [read_frame(row) for row in rows]
    node: Any = None
    for frame in cursor:
        children = {plan.name: plan} if node is None else {child.name: child for child in node.body}
        if frame.name not in children:
            place = "the plan" if node is None else f"'{node.name}'"
            raise PlanError(
                f"the saved cursor stands at '{frame.name}', which {place} does not have;"
                f" the trainer has changed since.{nearest(frame.name, children)}"
            )
        node = children[frame.name]
        if not isinstance(node, Repeat) and frame is not cursor[-1]:
            raise PlanError(f"the saved cursor goes below the stage '{frame.name}'")
    return cursor


def last_loop(plan: Repeat, rows: list[list[Any]]) -> Repeat:
    """Return the innermost loop named by a saved cursor."""
    loop = plan
    for name, *_ in rows[1:]:
        for child in loop.body:
            if child.name == name and isinstance(child, Repeat):
                loop = child
                break
    return loop


def read_frame(row: object) -> Frame:
    """Return one saved entry of a cursor; raise PlanError if it is malformed."""
    problem = f"a line of a cursor is [name, round, rounds], not {row!r}"
    if not isinstance(row, list) or len(row) != 3:
        raise PlanError(problem)
    if not isinstance(row[0], str) or type(row[1]) is not int:
        raise PlanError(problem)
    if not 0 <= row[1] < 2**63:
        raise PlanError(f"a line of a cursor counts rounds from 0, not {row[1]}")
    if row[2] is not None and (type(row[2]) is not int or not 0 <= row[2] < 2**63):
        raise PlanError(f"a line of a cursor ends in a number of rounds or null, not {row[2]!r}")
    return Frame(row[0], row[1], row[2])


def describe(cursor: Sequence[Frame]) -> str:
    """Return the cursor as readable text: `train 0, epoch 2, step 17`."""
    return ", ".join(f"{frame.name} {frame.index}" for frame in cursor) or "the end"
