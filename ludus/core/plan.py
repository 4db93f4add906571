"""Plan of a run: a tree of named loops (Repeat) and named pieces of work (Stage)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ludus.core import counters
from ludus.core.errors import PlanError

if TYPE_CHECKING:
    from ludus.core.run import Run

_NAME = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A named piece of work; a run can stop before or after it, not inside."""

    name: str
    work: Callable[[Run], Mapping[str, Any] | None]
    """Takes the Run, does the work, and returns metrics to record or None."""
    when: Callable[[Run], bool] | None = None
    """Skip the stage if this returns false."""
    always: bool = False
    """Run it even while the run is stopping (a final test, saving the models)."""
    before: str | None = None
    """The hook called just before; `before_<name>` by default."""
    after: str | None = None
    """The hook called just after; `after_<name>` by default."""
    note: str = ""
    """A few words for the printed plan."""


@dataclass(frozen=True, kw_only=True)
class Repeat:
    """A named loop over its body; it ends after `times` rounds or when `until` returns true."""

    name: str
    body: tuple[Stage | Repeat, ...]
    times: int | Callable[[Run], int] | None = None
    """Number of rounds. A number is read from the plan even on resume, so a run can be made longer; a
    function is called once, when the loop is entered, and its result is saved with the cursor."""
    until: Callable[[Run], bool] | None = None
    """End the loop if this returns true; called before every round."""
    when: Callable[[Run], bool] | None = None
    """Skip the whole loop if this returns false; called once, when it is entered."""
    goal: tuple[str, int] | None = None
    """For displays: the counter that `until` waits for, and the value that ends the loop."""
    counter: str | None = None
    """The counter of this loop: incremented after each round."""
    before: str | None = None
    """The hook called before each round; `before_<name>` by default."""
    after: str | None = None
    """The hook called after each round; `after_<name>` by default."""
    after_all: str | None = None
    """The hook called once after the last round, even if there were none, unless the run was ending
    before the loop was entered. There is no such hook by default."""
    info: Callable[[Run], Mapping[str, Any]] | None = None
    """The result of a round; called only for an `after` hook that has a parameter named `info`."""
    note: str = ""


Node = Stage | Repeat


def walk_nodes(plan: Repeat) -> Iterator[Node]:
    """Yield every node of the plan, parents first."""
    yield plan
    for child in plan.body:
        if isinstance(child, Repeat):
            yield from walk_nodes(child)
        else:
            yield child


def hook_names(node: Node) -> tuple[str, ...]:
    """Return the names of the hooks before and after this node, and of its `after_all` hook if it has one."""
    names = node.before or f"before_{node.name}", node.after or f"after_{node.name}"
    return (*names, node.after_all) if isinstance(node, Repeat) and node.after_all else names


def check_plan(plan: Repeat, counter_names: Iterable[str] = counters.SHARED) -> None:
    """Raise PlanError if a cursor could not name every position of this plan, or a counter is unknown."""
    if plan.times != 1:
        raise PlanError(f"the root '{plan.name}' of a plan runs once; give it times=1")
    owners: dict[str, str] = {}
    for node in walk_nodes(plan):
        if not isinstance(node, Repeat):
            continue
        for name in (node.counter, node.goal[0] if node.goal else None):
            if name is not None:
                counters.check(name, counter_names)
        if node.counter is not None:
            other = owners.setdefault(node.counter, node.name)
            if other != node.name:
                raise PlanError(f"loops '{other}' and '{node.name}' both own '{node.counter}'")
    _check_names(plan, above=())


def _check_names(node: Node, *, above: tuple[str, ...]) -> None:
    if not _NAME.fullmatch(node.name):
        raise PlanError(f"node name '{node.name}' must be lower-case words joined by '_'")
    if node.name in above:
        raise PlanError(f"loop '{node.name}' stands inside a loop of the same name; rename one")
    if isinstance(node, Stage):
        return
    if not node.body:
        raise PlanError(f"loop '{node.name}' has an empty body")
    if node.when is not None and node.after_all:
        raise PlanError(
            f"loop '{node.name}' has when and after_all; give one, the hook comes always"
        )
    if node.times is None and node.until is None:
        raise PlanError(f"loop '{node.name}' never ends; give it times or until")
    names = [child.name for child in node.body]
    for name in names:
        if names.count(name) > 1:
            raise PlanError(f"loop '{node.name}' has two children named '{name}'; rename one")
    for child in node.body:
        _check_names(child, above=(*above, node.name))


def counted(number: int, one: str, many: str) -> str:
    """Return a number with its noun, for a note: 1 minibatch, 2 minibatches."""
    return f"{number} {one if number == 1 else many}"


def render(plan: Repeat) -> str:
    """Return the plan as an indented tree, one node per line."""
    return "\n".join(_render_lines(plan, 0))


def _render_lines(node: Node, depth: int) -> Iterator[str]:
    words = [node.name]
    if isinstance(node, Repeat) and depth > 0 and isinstance(node.times, int) and node.times > 1:
        words.append(f"x {node.times}")
    if isinstance(node, Repeat) and node.goal is not None:
        words.append(f"until {node.goal[0]} = {node.goal[1]:,}")
    if node.note:
        words.append(f"({node.note})")
    elif node.when is not None:
        words.append("(if asked)")
    yield "  " * depth + " ".join(words)
    if isinstance(node, Repeat):
        for child in node.body:
            yield from _render_lines(child, depth + 1)
