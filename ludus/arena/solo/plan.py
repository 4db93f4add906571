"""The plan of solo agents: passes over the data, then the test and the saved models."""

from __future__ import annotations

from collections.abc import Sequence

from ludus.arena.solo.parameters import SoloHyperParameters
from ludus.core import Repeat, Stage
from ludus.core.intervals import Work


def make_solo_plan(
    config: SoloHyperParameters,
    num_batches: int,
    *,
    train_step: Work,
    then: Sequence[Stage],
    test: Work,
    save_models: Work,
    first: Sequence[Stage | Repeat],
    train_loop: Work | None,
) -> Repeat:
    """Return the plan; `first` comes before training, `train_loop` is a script's replacement of it."""
    step = Stage(name="train_step", work=train_step)
    iteration = Repeat(
        name="iteration",
        times=config.max_iterations,
        body=(Repeat(name="batch", times=num_batches, body=(step,)), *then),
    )
    return Repeat(
        name="train",
        times=1,
        body=(
            *first,
            iteration if train_loop is None else Stage(name="run_train_loop", work=train_loop),
            Stage(name="test", work=test, always=True),
            Stage(name="save_models", work=save_models, always=True),
        ),
    )
