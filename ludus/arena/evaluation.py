"""Evaluate agents on validation data, and test them on held-out data."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ludus.arena.analyser import AnalysedRollouts
from ludus.arena.libraries import TensorDict
from ludus.arena.playing.environment import Environment, MessageEnvironment
from ludus.arena.playing.rollout import Choose, roll_out, sampled
from ludus.arena.rl_config import RlHyperParameters
from ludus.arena.scenario import ScenarioInstance
from ludus.arena.statistics import means
from ludus.core import Run
from ludus.core.errors import Interrupted
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.seeds import derive


class ProtocolEvaluation:
    """Plays the episodes of an evaluation, the same ones every time, and those of the test."""

    def __init__(self, config: RlHyperParameters, instance: ScenarioInstance) -> None:
        self.config, self.instance = config, instance
        self.watched = AnalysedRollouts(config.analysers)

    @property
    def metric(self) -> str:
        """The metric by which agents are compared."""
        is_decided = isinstance(self.instance.train_environment, MessageEnvironment)
        return "accuracy" if is_decided else "return"

    def judge(self) -> Judge:
        """Return the judge of these evaluations."""
        section = self.config.evaluation
        return Judge(
            Score(
                self.metric,
                f"eval/{self.metric}",
                "max",
                patience=section.patience,
                min_delta=section.min_delta,
                target=section.target,
            )
        )

    def validate(self, run: Run | None = None) -> dict[str, float]:
        """Return the statistics of the episodes that select the best model."""
        environment = self.instance.validation_environment
        return means(self.watched(self._played(environment, 0, "validation", run), environment))

    def test(
        self,
        run: Run | None,
        count: int,
        step: Callable[[], None] = lambda: None,
        name: str = "test",
        first: int = 0,
        episodes: int | None = None,
    ) -> dict[str, float]:
        """Return the statistics of this many iterations of test episodes together, from this iteration on.

        `episodes` counts only this many of the first; None: all.
        """
        environment, rollouts = self.instance.test_environment, []
        for index in range(first, first + count):
            rollouts.append(self._played(environment, index, name, run))
            step()
        # Together, as a datum may occur in several iterations; cut after playing, so that the first
        # episodes are the same however many there are.
        return means(self.watched(torch.cat(rollouts)[:episodes], environment))

    def _played(
        self, environment: Environment, index: int, name: str, run: Run | None
    ) -> TensorDict:
        rollouts = roll_out(
            self.instance.agents,
            environment,
            environment.begin(index),
            self.choose(name, index),
            is_interrupted=lambda: run is not None and run.interrupted,
        )
        if run is not None and run.interrupted:
            raise Interrupted
        return rollouts

    def choose(self, name: str, index: int) -> Choose:
        """Return how actions are chosen: the most likely, or sampled by a generator of this name."""
        if self.config.evaluation.actions == "greedy":
            return lambda distribution: distribution.mode
        seed = derive(self.config.seed, f"arena/{name}/actions", index)
        return sampled(seed, self.instance.device)
