"""Intervals of a counter: whether one is due, in words, and the loops and stages that rounds share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus.core.plan import Repeat, Stage
from ludus.core.run import Run

Work = Callable[[Run], Mapping[str, Any] | None]


def is_due(count: int, interval: int) -> bool:
    """Return whether a counter that goes up by one stands at a multiple of the interval; 0 means never."""
    return interval > 0 and count > 0 and count % interval == 0


def is_due_or_last(count: int, interval: int, *, is_last: bool) -> bool:
    """Return whether an interval is due, or this is the last round and the interval is not 0."""
    return is_due(count, interval) or (interval > 0 and is_last)


def every(interval: int, unit: str, besides: str = "") -> str:
    """Return an interval in a few words for the printed plan; `unit` is one of what is counted."""
    if not interval:
        return "never"
    return f"every {unit if interval == 1 else f'{interval} {unit}s'}{besides}"


def never_reached(key: str, interval: int, limit: str, most: int) -> str:
    """Return the problem of an interval that is longer than the run."""
    return (
        f"'{key}' is {interval}, but {limit} is {most}: it would never be reached; lower it, or set 0"
        " for never"
    )


def passes(num_epochs: int, num_minibatches: int, train_step: Work) -> Repeat:
    """Return the loop over the epochs of a rollout, each in this many minibatches."""
    step = Stage(name="train_step", work=train_step)
    minibatch = Repeat(name="minibatch", times=num_minibatches, body=(step,))
    return Repeat(name="epoch", times=num_epochs, body=(minibatch,))


def follow_ups(
    counter: str,
    length: int,
    *,
    evaluate_every: int,
    log_every: int,
    keep_every: int,
    evaluate: Work,
    record: Work,
    keep: Work,
    records_last: bool = False,
) -> tuple[Stage, ...]:
    """Return the stages that follow a round of a run of this length: evaluate, record, save.

    `counter` is raised by a stage before these, so that they log under the number of the finished round.
    A run is also evaluated after its last round, and recorded after each evaluation. With `records_last`
    the last round is recorded too, and so is one in which an evaluation has ended the run.
    """

    def is_last(run: Run) -> bool:
        return run.counters[counter] >= length

    def is_evaluated(run: Run) -> bool:
        return is_due_or_last(run.counters[counter], evaluate_every, is_last=is_last(run))

    def is_recorded(run: Run) -> bool:
        if is_evaluated(run) or is_due(run.counters[counter], log_every):
            return True
        return records_last and is_last(run)

    also = "after an evaluation and the last" if records_last else "after an evaluation"
    logs = every(log_every, counter, f", {also}" if records_last else f", and {also}")
    return (
        Stage(name="evaluate", work=evaluate, when=is_evaluated,
              note=every(evaluate_every, counter, ", and after the last")),
        Stage(name="record", work=record, when=is_recorded, always=records_last,
              note=logs if log_every or not records_last else f"only {also}"),
        Stage(name="save", work=keep, note=every(keep_every, counter),
              when=lambda run: is_due(run.counters[counter], keep_every)),
    )  # fmt: skip
