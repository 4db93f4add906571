"""The plan of active learning: rounds of asking, labelling, fitting and testing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from ludus.active.config import ActiveConfig
from ludus.config.sections import kind_of
from ludus.core import Repeat, Run, Stage

Work = Callable[[Run], Mapping[str, Any] | None]


class Works(NamedTuple):
    """What the stages do."""

    query: Work
    label: Work
    select_model: Work
    take_best: Work
    test: Work
    settle: Work | None
    """Waits for the validation that a process beside training still does; None where there is none."""


def rounds(
    config: ActiveConfig, fit: Repeat, works: Works, *, is_over: Callable[[Run], bool]
) -> Repeat:
    """Return the rounds; `fit` is the loop of a round's epochs.

    train
      round x max_rounds
        query            which examples to ask for
        label            the oracle answers; the run pauses where it has not yet
        select_model     in the first round, of several candidates
        epoch ...        fit to all labels there are
        settle           where validation goes on beside training
        take_best        the best weights of the round, where they are kept
        test
    """
    has_choice = len(config.candidates) > 1 or config.selection is not None
    body: list[Stage | Repeat] = [
        Stage(name="query", work=works.query, note=f"{config.queries} by {kind_of(config.strategy)}"),
        Stage(name="label", work=works.label),
        Stage(
            name="select_model", work=works.select_model, when=lambda run: run.round("round") == 0,
            note=f"once, by {config.selection}" if has_choice else "once",
        ),
        fit,
        # Before the next round, whose judge knows nothing of this one.
        *([] if works.settle is None else [Stage(name="settle", work=works.settle)]),
        Stage(name="take_best", work=works.take_best, when=lambda run: config.best_model is not None),
        Stage(name="test", work=works.test),
    ]  # fmt: skip
    loop = Repeat(
        name="round", times=config.max_rounds, until=is_over, counter="round", body=tuple(body)
    )
    return Repeat(name="train", times=1, body=(loop,))
