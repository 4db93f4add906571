"""The plan of RL in the arena: iterations of episodes and updates, then the test and the saved models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ludus.arena.parameters import RlHyperParameters
from ludus.core import Repeat, Run, Stage

Work = Callable[[Run], Mapping[str, Any] | None]


@dataclass(frozen=True)
class Works:
    """What is done in each stage."""

    collect: Work
    estimate: Work
    train_step: Work
    evaluate: Work
    record: Work
    save: Work
    test: Work
    save_models: Work


class Due:
    """What an iteration ends with, by the counter of iterations."""

    def __init__(self, config: RlHyperParameters) -> None:
        self._config = config

    def evaluate(self, run: Run) -> bool:
        """Return whether the agents are judged now."""
        interval, count = self._config.evaluate_every_iterations, run.counters["iteration"]
        return is_due(count, interval) or (interval > 0 and count >= self._config.max_iterations)

    def record(self, run: Run) -> bool:
        """Return whether a record is written now."""
        config, count = self._config, run.counters["iteration"]
        is_last = count >= config.max_iterations
        return self.evaluate(run) or is_last or is_due(count, config.log_every_iterations)

    def save(self, run: Run) -> bool:
        """Return whether the weights are kept now."""
        return is_due(run.counters["iteration"], self._config.keep_every_iterations)


def make_plan(
    config: RlHyperParameters,
    works: Works,
    *,
    train_loop: Work | None,
    first: Sequence[Stage | Repeat],
) -> Repeat:
    """Return the plan; `first` comes before all iterations.

    `train_loop` is a loop of a script's own, one stage in the place of the iterations.
    """
    loop = _iterations(config, works)
    body: list[Stage | Repeat] = [
        *first,
        loop if train_loop is None else Stage(name="run_train_loop", work=train_loop),
    ]
    if config.rl.num_test_iterations:
        body.append(Stage(name="test", work=works.test, always=True))
    body.append(Stage(name="save_models", work=works.save_models, always=True))
    return Repeat(name="train", times=1, body=tuple(body))


def _iterations(config: RlHyperParameters, works: Works) -> Repeat:
    rl = config.rl
    minibatch = Repeat(
        name="minibatch",
        times=config.frames_per_batch // rl.minibatch_size,
        body=(Stage(name="train_step", work=works.train_step),),
    )

    due = Due(config)
    return Repeat(
        name="iteration",
        times=config.max_iterations,
        body=(
            Stage(name="collect", work=works.collect),
            Stage(name="estimate", work=works.estimate),
            Repeat(name="epoch", times=rl.num_epochs, body=(minibatch,)),
            Stage(name="evaluate", work=works.evaluate, when=due.evaluate,
                  note=every(config.evaluate_every_iterations, ", and after the last")),
            # Always: an evaluation may have ended the run, and is to be read of.
            Stage(name="record", work=works.record, when=due.record, always=True,
                  note=every(config.log_every_iterations, ", after an evaluation and the last")),
            Stage(name="save", work=works.save, when=due.save,
                  note=every(config.keep_every_iterations)),
        ),
    )  # fmt: skip


def is_due(count: int, interval: int) -> bool:
    """Return whether a counter stands at a multiple; 0 means never."""
    return interval > 0 and count > 0 and count % interval == 0


def every(interval: int, besides: str = "") -> str:
    """Return a few words for the printed plan."""
    if not interval:
        return "never" + besides
    return f"every {'iteration' if interval == 1 else f'{interval} iterations'}{besides}"
