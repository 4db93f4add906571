"""The plan of agents that learn alone: passes over the data, then the test and the saved models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.arena.plan import every, is_due
from ludus.arena.solo.parameters import SoloHyperParameters
from ludus.core import Repeat, Run, Stage

Work = Callable[[Run], Mapping[str, Any] | None]


@dataclass(frozen=True)
class SoloWorks:
    """What is done in each stage."""

    train_step: Work
    evaluate: Work
    record: Work
    save: Work
    test: Work
    save_models: Work


def make_solo_plan(
    config: SoloHyperParameters,
    works: SoloWorks,
    num_batches: int,
    *,
    first: Sequence[Stage | Repeat],
    train_loop: Work | None,
) -> Repeat:
    """Return the plan; `first` comes before training, `train_loop` is a script's own, in its place."""
    loop = _iterations(config, works, num_batches)
    return Repeat(
        name="train",
        times=1,
        body=(
            *first,
            loop if train_loop is None else Stage(name="run_train_loop", work=train_loop),
            Stage(name="test", work=works.test, always=True),
            Stage(name="save_models", work=works.save_models, always=True),
        ),
    )


def _iterations(config: SoloHyperParameters, works: SoloWorks, num_batches: int) -> Repeat:
    def is_last(run: Run) -> bool:
        return run.counters["iteration"] >= config.max_iterations

    def is_evaluated(run: Run) -> bool:
        interval = config.evaluate_every_iterations
        return is_due(run.counters["iteration"], interval) or (interval > 0 and is_last(run))

    def is_recorded(run: Run) -> bool:
        is_asked = is_due(run.counters["iteration"], config.log_every_iterations)
        return is_asked or is_last(run) or is_evaluated(run)

    step = Stage(name="train_step", work=works.train_step)
    return Repeat(
        name="iteration",
        times=config.max_iterations,
        body=(
            Repeat(name="batch", times=num_batches, body=(step,)),
            Stage(name="evaluate", work=works.evaluate, when=is_evaluated,
                  note=every(config.evaluate_every_iterations, ", and after the last")),
            Stage(name="record", work=works.record, when=is_recorded,
                  note=every(config.log_every_iterations, ", after an evaluation and the last")),
            Stage(name="save", work=works.save,
                  when=lambda run: is_due(run.counters["iteration"], config.keep_every_iterations),
                  note=every(config.keep_every_iterations)),
        ),
    )  # fmt: skip
