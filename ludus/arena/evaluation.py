"""Judge agents by episodes about data they do not learn from, and test them on data that judge nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from ludus.arena.environment import Environment, MessageEnvironment
from ludus.arena.parameters import RlHyperParameters
from ludus.arena.rollout import Choose, roll_out
from ludus.arena.scenario import ScenarioInstance
from ludus.arena.statistics import rollout_statistics
from ludus.core import Run
from ludus.core.errors import Interrupted
from ludus.judge.judge import Judge
from ludus.judge.scores import Score
from ludus.seeds import derive


class Evaluation:
    """Plays the episodes of an evaluation, the same ones every time, and those of the test."""

    def __init__(self, config: RlHyperParameters, instance: ScenarioInstance) -> None:
        self.config, self.instance = config, instance

    @property
    def metric(self) -> str:
        """What the agents are judged by."""
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
        """Return the statistics of the episodes that choose the best model."""
        return self._played(self.instance.validation_environment, 0, "validation", run)

    def test(
        self,
        run: Run | None,
        count: int,
        step: Callable[[], None] = lambda: None,
        name: str = "test",
    ) -> dict[str, float]:
        """Return the means over so many iterations of test episodes."""
        sums: dict[str, float] = {}
        for index in range(count):
            found = self._played(self.instance.test_environment, index, name, run)
            sums = {key: sums.get(key, 0.0) + value for key, value in found.items()}
            step()
        return {key: value / count for key, value in sums.items()}

    def _played(
        self, environment: Environment, index: int, name: str, run: Run | None
    ) -> dict[str, float]:
        rollouts = roll_out(
            self.instance.agents,
            environment,
            environment.begin(index),
            self.choose(name, index),
            num_steps=environment.num_steps,
        )
        if run is not None and run.interrupted:
            raise Interrupted
        found: Mapping[str, torch.Tensor] = rollout_statistics(rollouts, environment)
        return {key: float(value) for key, value in found.items()}

    def choose(self, name: str, index: int) -> Choose:
        """Return how actions are chosen: the likeliest, or drawn from a generator of this name."""
        if self.config.evaluation.actions == "greedy":
            return lambda distribution: distribution.mode
        seed = derive(self.config.seed, f"arena/{name}/actions", index)
        source = torch.Generator(self.instance.device).manual_seed(seed)
        return lambda distribution: distribution.drawn(source)
