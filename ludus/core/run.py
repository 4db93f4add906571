"""The Run: what stages, hooks and observers see of a run, with its counters, cursor and ways to end it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Protocol, TypeVar, runtime_checkable

from ludus.core import counters, states
from ludus.core.counters import Counters
from ludus.core.cursor import Cursor, read_frame, to_json
from ludus.core.errors import PlanError, nearest
from ludus.core.services import (
    DisplayProtocol,
    Files,
    JournalProtocol,
    Keep,
    Log,
    MemoryJournal,
    NoLog,
    Recall,
    Tell,
    drop_message,
    keep_nothing,
    recall_nothing,
)

T = TypeVar("T")


@runtime_checkable
class Stateful(Protocol):
    """A part: an object whose state is checkpointed. Its `scope` is `replicated` unless it names another."""

    def state_dict(self) -> Mapping[str, Any]: ...
    def load_state_dict(self, state: Mapping[str, Any], /) -> None: ...


Scope = Literal["replicated", "per_rank"]


class Run:
    """One execution of a plan, as seen by its stages, hooks and observers.

    A Run is itself a part: its counters, its position in the plan and how it ended are checkpointed.
    """

    def __init__(self, counter_names: Iterable[str] = counters.SHARED) -> None:
        self._counter_names = tuple(counter_names)
        self.counters = Counters(dict.fromkeys(self._counter_names, 0))
        self.cursor: Cursor = []
        self.boundaries = 0
        self.stop_reason: str | None = None
        self.stop_key: str | None = None
        """Key of the config that stopped the run, if a resume with another value may go on."""
        self.leaving: str | None = None
        self.is_finished = False
        self.is_pending = False
        """True if something has happened since the last boundary."""
        self.interrupted = False
        """True once a signal asked the run to pause; long stages poll it."""
        self.is_pausing = False
        """True at the boundary where the run pauses; the checkpoint there is the last one."""
        self.waiting_for = ""
        """The event a stage waits for when it raises Interrupted without a signal."""
        self.exhausted: list[list[Any]] = []
        """Cursor where the last outermost loop ended: a run that goes on after its end continues
        from there. A loop that a stop kept from opening is none."""
        self.record: Callable[[Mapping[str, Any] | None], None] = _forget
        """Takes the metrics of every stage; the runtime sets it to the log's `record`."""
        self.log: Log = NoLog()
        self.files: Files | None = None
        """Files of the run; None if it has no directory."""
        self.journal: Callable[[str], JournalProtocol] = functools.cache(MemoryJournal)
        """Opens the journal of this name, the same one each time: for a stage's effects outside the run."""
        self.keep_model: Keep = keep_nothing
        self.recall_model: Recall = recall_nothing
        self.tell: Tell = drop_message
        self.display: DisplayProtocol | None = None
        self.device = "cpu"
        """Device that the session computes on, as torch names it."""
        self.decide: Callable[[Any], Any] = _as_decided_here
        """Every decision that shapes the walk passes through it, so that several processes can agree."""

    def round(self, loop: str) -> int:
        """Return the current round of this open loop, counted from 0 each time it is entered."""
        for frame in self.cursor:
            if frame.name == loop:
                return frame.index
        names = [frame.name for frame in self.cursor]
        raise PlanError(f"'{loop}' is not open, so it is in no round.{nearest(loop, names)}")

    def services(self) -> tuple[object, ...]:
        """Return the objects that serve this run and manage their own state."""
        # Not vars(self): creating the instance's dict makes CPython 3.11 walk the plan slower.
        return self.log, self.files, self.display

    @property
    def is_ending(self) -> bool:
        """Whether the open loops are being left."""
        return self.stop_reason is not None or self.leaving is not None

    def stop(self, reason: str) -> None:
        """Leave every loop; each still gets its `after_` hook and `always` stages still run."""
        if self.stop_reason is None:
            self.stop_reason = reason

    def leave(self, loop: str, reason: str) -> None:
        """End one open loop in order; the plan continues after it."""
        names = [frame.name for frame in self.cursor]
        if loop not in names:
            raise PlanError(
                f"cannot leave '{loop}' ({reason}): it is not open.{nearest(loop, names)}"
            )
        # Leaving an outer loop closes the inner ones too, so the outermost request wins.
        if self.leaving is None or names.index(loop) < names.index(self.leaving):
            self.leaving = loop

    def state_dict(self) -> dict[str, Any]:
        """Return everything needed to continue from here, ready for JSON."""
        # Only what has one has a key: the bytes of all other states are as they were before there was any.
        key = {} if self.stop_key is None else {"stop_key": self.stop_key}
        return {
            "counters": dict(self.counters),
            "cursor": to_json(self.cursor),
            "boundaries": self.boundaries,
            "stop_reason": self.stop_reason,
            "leaving": self.leaving,
            "is_finished": self.is_finished,
            "exhausted": self.exhausted,
            **key,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a saved state. The cursor is not followed here: the loop starts from it."""
        names = ("cursor", "boundaries", "stop_reason", "leaving", "is_finished", "exhausted")
        states.check_keys(state, "counters", *names, optional=["stop_key"])
        counts = states.counts(state, "counters")
        with states.within("counters"):
            states.check_keys(counts, *self._counter_names, optional=list(counts))
        boundaries, is_finished = (
            states.whole(state, "boundaries"),
            states.flag(state, "is_finished"),
        )
        reason = None if state["stop_reason"] is None else states.text(state, "stop_reason")
        key = None if state.get("stop_key") is None else states.text(state, "stop_key")
        opened, exhausted = _frames(state, "cursor"), _frames(state, "exhausted")
        leaving = state["leaving"]
        if leaving is not None and leaving not in [frame.name for frame in opened]:
            raise states.StateError("leaving", f"is {leaving!r}, a loop that the cursor is not in")
        self.counters = Counters(counts)
        self.boundaries, self.stop_reason, self.stop_key = boundaries, reason, key
        self.leaving, self.is_finished, self.exhausted = leaving, is_finished, to_json(exhausted)


def _frames(state: Mapping[str, Any], key: str) -> Cursor:
    """Return a saved cursor, parsed entry by entry; whether it fits the plan is checked later."""
    lines = states.rows(state, key)
    try:
        return [read_frame(line) for line in lines]
    except PlanError as error:
        raise states.StateError(key, f"is no cursor: {error}") from error


def _forget(metrics: Mapping[str, Any] | None) -> None:
    """Drop the metrics of a run without a log."""


def _as_decided_here(value: T) -> T:
    return value


class Observer(Protocol):
    """Called with the run at every boundary; may ask it to stop, nothing else."""

    def __call__(self, run: Run, /) -> None: ...


class Every:
    """True at a boundary where the named counter has crossed a multiple of the interval.

    An interval of 0 means never. The last value seen is state: put its owner in a part.
    """

    __slots__ = ("counter", "interval", "seen")

    def __init__(self, interval: int, counter: str) -> None:
        counters.check(counter)
        self.interval = interval
        self.counter = counter
        self.seen = 0

    def is_due(self, run: Run) -> bool:
        """Return true once for each multiple that the counter has reached or passed."""
        value = run.counters[self.counter]
        if value == self.seen or self.interval == 0:
            return False
        is_crossed = value // self.interval > self.seen // self.interval
        self.seen = value
        return is_crossed


def check_intervals(owners: Iterable[object], counter_names: Iterable[str]) -> None:
    """Raise PlanError if an Every held by one of these owners waits for a counter that the run lacks."""
    for owner in owners:
        for value in getattr(owner, "__dict__", {}).values():
            is_row = isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Every)
            for every in value if is_row else (value,):
                if isinstance(every, Every):
                    counters.check(every.counter, counter_names)
