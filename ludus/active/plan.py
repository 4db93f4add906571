"""The plan of active learning: rounds of querying, labelling, fitting and testing."""

from __future__ import annotations

from collections.abc import Callable

from ludus.active.config import ActiveConfig
from ludus.config.sections import kind_of
from ludus.core import Repeat, Run, Stage
from ludus.core.intervals import Work


def rounds(
    config: ActiveConfig,
    fit: Repeat,
    *,
    query: Work,
    label: Work,
    select_model: Work,
    take_best: Work,
    test: Work,
    settle: Work | None,
    is_over: Callable[[Run], bool],
) -> Repeat:
    """Return the rounds; `fit` is the loop of a round's epochs.

    `settle` waits for a pending asynchronous validation; None if validation is synchronous.

    train
      round x max_rounds
        query            choose the examples to label
        label            the oracle answers; the run pauses until it has
        select_model     in the first round, of several candidates
        epoch ...        fit to all labels so far
        settle           if validation is asynchronous
        take_best        the best weights of the round, if they are kept
        test
    """
    has_choice = len(config.candidates) > 1 or config.selection is not None
    body: list[Stage | Repeat] = [
        Stage(name="query", work=query, note=f"{config.queries} by {kind_of(config.strategy)}"),
        Stage(name="label", work=label),
        Stage(
            name="select_model", work=select_model, when=lambda run: run.round("round") == 0,
            note=f"once, by {config.selection}" if has_choice else "once",
        ),
        fit,
        # Before the next round, whose judge is reset.
        *([] if settle is None else [Stage(name="settle", work=settle)]),
        Stage(name="take_best", work=take_best, when=lambda run: config.evaluation.keep > 0),
        Stage(name="test", work=test),
    ]  # fmt: skip
    loop = Repeat(
        name="round", times=config.max_rounds, until=is_over, counter="round", body=tuple(body)
    )
    return Repeat(name="train", times=1, body=(loop,))
