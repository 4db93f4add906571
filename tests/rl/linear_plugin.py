"""A trainer kind from outside ludus whose evaluations can be made in another process: a linear policy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ludus
from ludus.config.base import validate
from ludus.config.migrations import VERSION
from ludus.envs.config import EnvSection
from ludus.rl.evaluation.evaluator import EpisodeEvaluator, EvaluationTask
from ludus.session.trainer import Trainer
from tests.envs.odd_envs import LinearPolicy, walk


class LinearConfig(ludus.TrainerConfig):
    """Where the policy walks."""

    env: EnvSection
    """The env of the evaluation."""


class LinearJob:
    """Six episodes, with a second score: the mean length of an episode."""

    metrics = ("eval/return_mean", "eval/return_std", "eval/return_min", "eval/return_max")
    metrics = (*metrics, "eval/length_mean")

    def __init__(self, config: LinearConfig) -> None:
        self._task = EvaluationTask(config.env, num_episodes=6, seed=5, num_envs=2)

    def rebuild(self) -> LinearPolicy:
        return LinearPolicy()

    def evaluate(
        self, weights: Mapping[str, Any], *, is_interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        policy = self.rebuild()
        policy.load_weights(weights)
        return EpisodeEvaluator(self._task, is_interrupted=is_interrupted).evaluate(policy)[1]


@ludus.register_trainer("linear")
class LinearTrainer(Trainer):
    """It only says how it is evaluated."""

    Config = LinearConfig
    evaluation_job = LinearJob


def linear_config(*trouble: Any) -> LinearConfig:
    settings = ludus.example("supervised").settings.model_dump()
    data = {"version": VERSION, "kind": "linear", "name": "linear", "seed": 5, "settings": settings}
    env = walk(*trouble).model_dump()
    return validate(LinearConfig, {**data, "env": env}, source="the test")
