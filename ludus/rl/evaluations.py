"""The evaluations of a run: now, or beside training with the result heard at the next one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor

from ludus.core.errors import ConfigError
from ludus.core.run import Run
from ludus.registry import find
from ludus.rl.async_evaluator import AsyncEvaluator
from ludus.rl.config import RLConfig
from ludus.rl.evaluator import Evaluator
from ludus.rl.judge import Judge, Keep


class Evaluations:
    """Evaluates an agent and lets the judge hear what came of it.

    An evaluation beside training is launched at one evaluation and heard at the next, or at the end,
    so what follows from it does not depend on how long it took.
    """

    def __init__(
        self,
        config: RLConfig,
        judge: Judge,
        *,
        is_interrupted: Callable[[], bool],
        tell: Callable[[str], None],
        given: Any,
    ) -> None:
        self._judge = judge
        self._tell = tell
        self.own = Evaluator(
            config.env,
            num_episodes=config.evaluation.episodes,
            seed=config.seed,
            num_envs=config.evaluation.envs,
            is_interrupted=is_interrupted,
        )
        """Plays the episodes that the config describes."""
        self.evaluator = self.own if given is None else given
        self.beside: AsyncEvaluator | None = None
        """Does the same in a process of its own, where the config asks for it."""
        if config.evaluation.asynchronous and given is None:
            self.beside = AsyncEvaluator(
                self.own,
                config.model_dump(mode="json"),
                timeout=config.evaluation.timeout_seconds,
                on_event=tell,
            )

    def evaluate(self, run: Run, agent: Any, keep: Keep) -> Mapping[str, Any]:
        """Judge the agent as it is now; return the record."""
        score, record = self.evaluator.evaluate(agent)
        self._hear(run, score, agent.weights, run.counters, keep)
        return dict(record)

    def launch(self, run: Run, agent: Any, keep: Keep, logger: Any) -> None:
        """Hear the evaluation under way and begin another."""
        assert self.beside is not None
        self.settle(run, keep, logger)
        if run.stop_reason is None:
            self.beside.launch(run.counters, agent.weights())

    def settle(self, run: Run, keep: Keep, logger: Any) -> None:
        """Wait for the evaluation under way, if there is one, and draw the consequences.

        Its record is written under the counters of the moment it was launched.
        """
        done = None if self.beside is None else self.beside.collect()
        if done is not None:
            counters, score, record, weights = done
            self._hear(run, score, lambda: weights, counters, keep)
            logger.write_past(run, counters, record)

    def _hear(
        self,
        run: Run,
        score: float | None,
        weights: Callable[[], Mapping[str, Tensor]],
        counters: Mapping[str, int],
        keep: Keep,
    ) -> None:
        if score is None or not math.isfinite(score):
            opts = counters["opt_steps"]
            self._tell(f"the evaluation at opt_step {opts} gave {score}: it counts for nothing")
            return
        self._judge.hear(run, float(score), weights, counters, keep)

    def open(self) -> None:
        """Start the process beside, so that the first evaluation need not wait for it."""
        if self.beside is not None:
            self.beside.open()

    def close(self) -> None:
        """Let the process beside go."""
        if self.beside is not None:
            self.beside.close()

    def inexact_because(self) -> Sequence[str]:
        """Return the evaluations that were lost."""
        return () if self.beside is None else self.beside.inexact_because()


def check_judged_alike(trainer: type[Any], config: RLConfig, evaluator: Any) -> None:
    """Raise ConfigError where a process beside training would not judge what is trained here."""
    if not config.evaluation.asynchronous:
        return
    remedy = "set evaluation.asynchronous to false"
    if evaluator is not None:
        raise ConfigError(
            f"'evaluation.asynchronous' is true, but an evaluator of your own runs here; {remedy}"
        )
    if find("trainer", config.kind).Agent is not trainer.Agent:
        raise ConfigError(
            f"'evaluation.asynchronous' is true, but only the registered trainer of kind"
            f" '{config.kind}' can be rebuilt in another process, not {trainer.__name__}; register it"
            f" under a kind of its own, or {remedy}"
        )
