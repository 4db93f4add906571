"""The run itself: its counters and where it stands."""

from __future__ import annotations

from ludus.core import Run

# Other counters are a script's own, and the plan says whether a place is one.
HARMLESS = (
    "counters a stranger more",
    "stop_reason nothing",
    "leaving nothing",
    "exhausted one *",
    "exhausted/*/2 nothing",
)


def make() -> Run:
    return Run()


def use(run: Run) -> None:
    run.counters["opt_steps"] += 3
    run.boundaries += 1
    run.exhausted = [["train", 0, 1], ["epoch", run.boundaries, 2]]
    run.stop("enough")
