"""What happens in an RL run, event by event, and how the two plans should go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

import ludus
from ludus import Logger


class Spy:
    """Evaluator, back end and callback in one: it notes what happens, in order.

    The evaluator gives the listed scores in turn, the last one for ever.
    """

    def __init__(self, config: Any, scores: Sequence[float] = (1.0,)) -> None:
        self.events: list[str] = []
        self.records: list[Any] = []
        self.kept: dict[str, dict[str, Tensor]] = {}
        """The weights at each moment they were kept."""
        self.told: list[str] = []
        self.scores = list(scores)
        self.trainer: Any = ludus.build_trainer(config)
        self.trainer.tell = self.told.append
        logger = Logger({"backends": []})
        logger.attach(self)
        self.trainer.set_logger(logger)
        self.trainer.set_evaluator(self)
        self.trainer.add(Hooks(self), name="spy")

    def run(self, root: Path, name: str | None = None, **options: Any) -> Any:
        return self.trainer.fit(root=str(root), name=name, **options)

    def evaluate(self, agent: Any) -> tuple[float, dict[str, float]]:
        self.events.append("evaluate")
        score = self.scores.pop(0) if len(self.scores) > 1 else self.scores[0]
        return score, {"eval/return_mean": score}

    def write(self, record: Any) -> None:
        self.events.append(f"write {record.counters.get('opt_steps', 0)}")
        self.records.append(record)

    def close(self) -> None:
        """Back ends are closed at the end."""

    def watch(self, owner: Any, name: str, event: Callable[[tuple[Any, ...]], str]) -> None:
        """Note each call of a method, before it is made."""
        method = getattr(owner, name)

        def watched(*arguments: Any) -> Any:
            self.events.append(event(arguments))
            return method(*arguments)

        setattr(owner, name, watched)

    def keep(self, name: str, weights: dict[str, Tensor]) -> str:
        what = "best" if "best-" in name else name.removeprefix("models/")
        self.kept[what] = self.trainer.agent.weights()
        return f"save {what}"


class Hooks:
    """The hooks of the common plans; the first sets the spy on what has no hook."""

    def __init__(self, spy: Spy) -> None:
        self._spy = spy

    def before_train(self) -> None:
        spy, trainer = self._spy, self._spy.trainer
        spy.events.append("before_train")
        spy.watch(trainer.sampler, "sample_and_push", lambda _: "sample_and_push")
        spy.watch(trainer, "train_step", lambda given: f"train_step {given[1]}")
        spy.watch(trainer.run, "keep_model", lambda given: spy.keep(*given[:2]))

    def before_step(self) -> None:
        self._spy.events.append("before_step")

    def after_step(self) -> None:
        self._spy.events.append("after_step")

    def after_train(self) -> None:
        self._spy.events.append("after_train")


class EpochHooks(Hooks):
    """Those that only the plan in epochs has."""

    def before_epoch(self) -> None:
        self._spy.events.append("before_epoch")

    def after_epoch(self) -> None:
        self._spy.events.append("after_epoch")


def in_epochs(
    num_epochs: int,
    num_steps: int,
    num_updates: Callable[[int], int],
    *,
    evaluate_every_epochs: int,
    log_every_epochs: int,
    keep_every_epochs: int,
    scores: Sequence[float],
) -> Iterator[str]:
    """Yield the events of a run in epochs; records and saves, of which it says nothing, close an epoch."""
    waiting, best, opts, is_written = list(scores), -float("inf"), 0, True
    yield "before_train"
    for epoch in range(num_epochs):
        yield "before_epoch"
        yield from ["sample_and_push"] * num_steps
        for batch_idx in range(num_updates(epoch)):
            yield "before_step"
            yield f"train_step {batch_idx}"
            opts, is_written = opts + 1, False
        yield "after_step"
        is_evaluated = (
            evaluate_every_epochs > 0 and epoch % evaluate_every_epochs == 0 and epoch > 0
        )
        if is_evaluated:
            yield "evaluate"
            score = waiting.pop(0) if len(waiting) > 1 else waiting[0]
            if score > best:
                best = score
                yield "save best"
        if is_evaluated or (log_every_epochs and (epoch + 1) % log_every_epochs == 0):
            yield f"write {opts}"
            is_written = True
        if keep_every_epochs and (epoch + 1) % keep_every_epochs == 0:
            yield f"save {opts}"
        yield "after_epoch"
    # What was gathered since the last record is not dropped.
    if not is_written:
        yield f"write {opts}"
    yield "after_train"


def in_steps(
    num_envs: int, learning_starts: int, steps: Any, scores: Sequence[float]
) -> Iterator[str]:
    """Yield the events of a run in steps; with several envs an update is due for each multiple passed."""
    waiting, best, env_steps, opts, is_written = list(scores), -float("inf"), 0, 0, True
    yield "before_train"
    while True:
        yield "before_step"
        while True:
            yield "sample_and_push"  # a
            before, env_steps = env_steps, env_steps + num_envs  # b
            due = (
                env_steps // steps.update_every_env_steps - before // steps.update_every_env_steps
            )  # c
            if env_steps >= learning_starts and due:
                break
        for batch_idx in range(due):
            yield f"train_step {batch_idx}"
            opts, is_written = opts + 1, False  # d
            do_eval = (
                steps.evaluate_every_opt_steps > 0 and opts % steps.evaluate_every_opt_steps == 0
            )
            do_rec = steps.log_every_opt_steps > 0 and opts % steps.log_every_opt_steps == 0
            if do_eval:  # e
                yield "evaluate"
                score = waiting.pop(0) if len(waiting) > 1 else waiting[0]
                if score > best:
                    best = score
                    yield "save best"
            if do_eval or do_rec:  # f, g
                yield f"write {opts}"
                is_written = True
            if steps.keep_every_opt_steps > 0 and opts % steps.keep_every_opt_steps == 0:  # h
                yield f"save {opts}"
            if opts == steps.max_opt_steps:  # i
                yield "after_step"
                # What was gathered since the last record is not dropped.
                if not is_written:
                    yield f"write {opts}"
                yield "after_train"
                return
        yield "after_step"
