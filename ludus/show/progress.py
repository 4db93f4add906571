"""Progress of a run: its position in the plan, the time left, and bars for a trainer's own phases."""

from __future__ import annotations

import functools
import inspect
import operator
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, SupportsIndex, TypeVar, runtime_checkable

from ludus.core.cursor import Frame, read_frame
from ludus.core.errors import LudusError
from ludus.core.plan import Node, Repeat, Stage
from ludus.core.run import Run

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class OpenLoop:
    """An open loop of the run; a round that has begun counts as reached."""

    name: str
    reached: int
    total: int | None
    fraction: float | None
    """Fraction of all its rounds that is done; None if unknown."""


@dataclass(frozen=True, slots=True)
class Place:
    """Position of a run at one moment, with its estimated end; times are in seconds."""

    loops: tuple[OpenLoop, ...] = ()
    """Open loops, outermost first, without the root, which runs once."""
    doing: str = "starting"
    """The current stage, or how the run ended."""
    fraction: float | None = None
    elapsed: float = 0.0
    left: float | None = None
    is_over: bool = False
    """Whether the run has ended, or only its last hooks remain."""


class Odometer:
    """Measures the progress of a run. Another thread may read it while the run continues."""

    def __init__(self, plan: Repeat, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._clock = clock
        self._opened = self._began = clock()
        self._first: float | None = None
        self._stopped_at: float | None = None
        self._rounds_seen: dict[int, int] = {}

    def open(self) -> None:
        """Start counting the elapsed time."""
        self._opened = self._began = self._clock()

    def begin(self, run: Run) -> None:
        """Measure the speed from now on: a resumed run does not start at 0."""
        self._first = None
        self.read(run)

    def read(self, run: Run) -> Place:
        """Return the current position of the run."""
        # The run continues during this call, so everything below uses one copy.
        frames = [Frame(frame.name, frame.index, frame.total) for frame in list(run.cursor)]
        # The root alone is open at the very beginning, and again during its last hooks.
        is_over = len(frames) == 1 and bool(run.exhausted or run.stop_reason or run.boundaries)
        if is_over and run.exhausted:
            # All its loops have done their rounds.
            frames = [read_frame(row) for row in run.exhausted]
        now = self._clock()
        if run.is_finished or is_over:
            is_stopped = run.stop_reason is not None
            how = f"stopped: {run.stop_reason}" if is_stopped else "finished"
            loops = () if run.is_finished or is_stopped else self._loops(frames, run)[0]
            # A run that was stopped early keeps the fraction of its length that it has done.
            done = self._stopped_at if is_stopped else 1.0
            return Place(loops, how, done, now - self._opened, 0.0, is_over=True)
        loops, nodes, overall = self._loops(frames, run)
        doing = "" if nodes else "starting"
        if nodes and isinstance(nodes[-1], Stage):
            doing = nodes[-1].name
        if run.stop_reason is not None:
            # Stages that still run are no progress, so the first fraction after the stop remains.
            self._stopped_at = overall if self._stopped_at is None else self._stopped_at
            return Place(loops, doing, self._stopped_at, now - self._opened)
        return Place(loops, doing, overall, now - self._opened, self._left(overall, now))

    def _loops(
        self, frames: list[Frame], run: Run
    ) -> tuple[tuple[OpenLoop, ...], list[Node], float | None]:
        """Return the open loops below the root, the nodes of the frames, and the fraction of the root."""
        nodes = self._nodes(frames)
        del frames[len(nodes) :]
        fractions = self._fractions(nodes, frames, run)
        loops: list[OpenLoop] = []
        for node, frame, fraction in zip(nodes[1:], frames[1:], fractions[1:], strict=True):
            if not isinstance(node, Repeat):
                continue
            if node.goal is not None:
                # The content of such a loop changes too fast to be shown.
                counter, goal = node.goal
                loops.append(OpenLoop(counter, run.counters[counter], goal, fraction))
                break
            reached = frame.index + (frame is not frames[-1])
            loops.append(OpenLoop(frame.name, reached, frame.total, fraction))
        return tuple(loops), nodes, fractions[0] if fractions else None

    def _left(self, fraction: float | None, now: float) -> float | None:
        if fraction is not None and self._first is None:
            self._first, self._began = fraction, now
        if fraction is None or self._first is None or fraction <= self._first:
            return None
        return (now - self._began) * (1.0 - fraction) / (fraction - self._first)

    def _nodes(self, frames: list[Frame]) -> list[Node]:
        """Return the plan's node for each frame, and fill in the known numbers of rounds."""
        nodes: list[Node] = []
        children: Sequence[Node] = (self._plan,)
        for frame in frames:
            node = next((child for child in children if child.name == frame.name), None)
            if node is None:
                break
            nodes.append(node)
            if isinstance(node, Repeat):
                children = node.body
                if isinstance(node.times, int):
                    frame.total = node.times
                if frame.total is not None:
                    self._rounds_seen[id(node)] = frame.total
        return nodes

    def _fractions(self, nodes: list[Node], frames: list[Frame], run: Run) -> list[float | None]:
        """Return the fraction of each node that is done, including that of the node inside it."""
        fractions: list[float | None] = []
        for depth in reversed(range(len(nodes))):
            node, frame = nodes[depth], frames[depth]
            is_about_to_count = (
                isinstance(node, Repeat) and node.times is not None and frame.total is None
            )
            if isinstance(node, Stage) or is_about_to_count:
                fractions.append(0.0)
                continue
            if isinstance(node, Repeat) and node.goal is not None:
                counter, goal = node.goal
                fractions.append(min(1.0, run.counters[counter] / goal))
                continue
            within: float | None = 0.0
            if fractions:
                within = self._within_round(node, nodes[depth + 1], fractions[-1])
            fractions.append(_of_rounds(frame, within))
        return fractions[::-1]

    def _within_round(self, loop: Repeat, at: Node, fraction: float | None) -> float | None:
        """Return the fraction of this round that is done, its children weighted by their stages."""
        sizes = [self._num_stages(child) for child in loop.body]
        place = next(index for index, child in enumerate(loop.body) if child is at)
        known = [size for size in sizes if size is not None]
        if fraction is None or len(known) < len(sizes):
            return None
        return (sum(known[:place]) + fraction * known[place]) / max(1, sum(known))

    def _num_stages(self, node: Node) -> int | None:
        if isinstance(node, Stage):
            return 1
        if node.goal is not None:
            return node.goal[1]
        if node.times is None:
            return None
        rounds = node.times if isinstance(node.times, int) else self._rounds_seen.get(id(node), 1)
        sizes = [self._num_stages(child) for child in node.body]
        return rounds * sum(1 if size is None else size for size in sizes)


def _of_rounds(frame: Frame, within: float | None) -> float | None:
    if frame.total is None or (within is None and frame.total <= 1):
        return None
    return min(1.0, (frame.index + (within or 0.0)) / max(1, frame.total))


@runtime_checkable
class ShowsPhases(Protocol):
    """The methods of a display that a phase calls."""

    def phase(self, description: str, done: int, total: int) -> None: ...
    def end_phase(self) -> None: ...


class IterationContext:
    """Counts the iterations of one phase and updates the display, if there is one."""

    def __init__(self, num_iterations: int, display: ShowsPhases | None, description: str) -> None:
        self.num_iterations = num_iterations
        self.num_done = 0
        self._display = display
        self._description = description
        self._show()

    def set_description(self, description: str) -> None:
        """Set the description of the phase."""
        self._description = description
        self._show()

    def step(self) -> None:
        """Count one iteration as done."""
        self.num_done += 1
        self._show()

    def close(self) -> None:
        """Remove the bar."""
        if self._display is not None:
            self._display.end_phase()

    def _show(self) -> None:
        if self._display is not None:
            self._display.phase(self._description, self.num_done, self.num_iterations)


def attach_progress_bar(
    num_iterations: Callable[[Any], int],
) -> Callable[[Callable[..., R]], Callable[..., R]]:
    """Give a method an `iteration_context`, whose total is `num_iterations(self)`.

    The method is called without that argument. If `self.display` is a display, it shows the bar. A
    method that is passed an IterationContext, as by an override calling super(), uses that one.
    """

    def attach(method: Callable[..., R]) -> Callable[..., R]:
        is_first = _takes_it_first(method)

        @functools.wraps(method)
        def with_bar(self: object, *args: object, **kwargs: object) -> R:
            if any(isinstance(value, IterationContext) for value in (*args, *kwargs.values())):
                return method(self, *args, **kwargs)
            display = getattr(self, "display", None)
            context = IterationContext(
                _count(num_iterations, method, self),
                display if isinstance(display, ShowsPhases) else None,
                method.__name__.strip("_").replace("_", " "),
            )
            try:
                if is_first:
                    return method(self, context, *args, **kwargs)
                return method(self, *args, iteration_context=context, **kwargs)
            finally:
                context.close()

        with_bar.__dict__["num_iterations"] = functools.partial(_count, num_iterations, method)
        return with_bar

    return attach


def total_iterations(trainer: object) -> int:
    """Return the number of iterations of all phases, over the decorated methods of its class."""
    cls = type(trainer)
    names = sorted({name for base in cls.__mro__ for name in vars(base)})
    # Looked up statically on the class, so that no property runs.
    attributes = [inspect.getattr_static(cls, name, None) for name in names]
    phases = {
        id(attribute): attribute.__dict__["num_iterations"]
        for attribute in attributes
        if inspect.isfunction(attribute) and "num_iterations" in attribute.__dict__
    }
    return sum(count(trainer) for count in phases.values())


def _takes_it_first(method: Callable[..., Any]) -> bool:
    """Return whether the context is passed right after self, rather than by keyword."""
    parameters = list(inspect.signature(method).parameters.values())[1:]
    first = parameters[0] if parameters else None
    if first is not None and first.kind in (first.POSITIONAL_ONLY, first.POSITIONAL_OR_KEYWORD):
        return all(parameter.name != "iteration_context" for parameter in parameters[1:])
    if any(parameter.name == "iteration_context" for parameter in parameters):
        return False
    raise LudusError(
        f"{method.__qualname__} has a progress bar but takes no iteration_context;"
        " write it as def method(self, iteration_context)"
    )


def _count(num_iterations: Callable[[Any], int], method: Callable[..., Any], owner: object) -> int:
    count = num_iterations(owner)
    if not isinstance(count, SupportsIndex) or operator.index(count) < 0:
        raise LudusError(
            f"the progress bar of {method.__qualname__} has {count!r} iterations;"
            " its function must answer a whole number, 0 or more"
        )
    return operator.index(count)
