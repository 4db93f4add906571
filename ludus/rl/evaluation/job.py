"""Evaluation of an agent in any process, from its config and its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor

from ludus.config.registry import find
from ludus.envs.config import make_env
from ludus.envs.vector import make_vector_env
from ludus.rl.agent import Agent
from ludus.rl.config import RLConfig
from ludus.rl.evaluation.evaluator import EpisodeEvaluator, EvaluationTask
from ludus.seeds import derive, forked

_METRICS = ("return_mean", "return_std", "return_min", "return_max", "length_mean")


class EpisodeJob:
    """The episodes that the config describes, played by an agent rebuilt from the same config."""

    metrics: ClassVar[tuple[str, ...]] = tuple(f"eval/{name}" for name in _METRICS)

    def __init__(self, config: RLConfig) -> None:
        self._config = config
        self._task = EvaluationTask.of(config)

    def rebuild(self) -> Agent:
        """Return an untrained agent; make every env once, to check that it can be made."""
        for section in (self._task.section, *self._task.more_sections.values()):
            make_env(section).close()
        return rebuild_agent(self._config)

    def evaluate(
        self, weights: Mapping[str, Tensor], *, is_interrupted: Callable[[], bool]
    ) -> dict[str, float]:
        """Return the metrics of these weights; the result is the same in every process."""
        evaluator = EpisodeEvaluator(self._task, is_interrupted=is_interrupted)
        # Making an agent may use random numbers too.
        with forked(derive(self._task.seed, "eval")):
            agent = rebuild_agent(self._config)
            agent.load_weights(weights)
            return evaluator.evaluate(agent)[1]


def rebuild_agent(config: RLConfig) -> Agent:
    """Return an agent for acting, on the CPU, from its trainer's config."""
    env = make_vector_env(config.env, 1, config.seed)
    try:
        agent: Agent = find("trainer", config.kind).Agent(config, env.spec, torch.device("cpu"))
        return agent
    finally:
        env.close()
