"""Make what a run needs besides its agent: the envs, the evaluator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ludus.rl.async_evaluator import AsyncEvaluator
from ludus.rl.config import RLConfig
from ludus.rl.evaluator import Evaluator
from ludus.rl.vector_env import make_vector_env
from ludus.rl.worker_env import WorkerVectorEnv


def make_env(config: RLConfig) -> Any:
    """Return the training envs: in this process, or spread over worker processes."""
    workers = min(config.settings.workers, config.num_envs)
    if workers:
        return WorkerVectorEnv(config.env, config.num_envs, config.seed, workers=workers)
    return make_vector_env(config.env, config.num_envs, config.seed)


def make_evaluator(config: RLConfig, is_interrupted: Callable[[], bool]) -> Evaluator:
    """Return what evaluates in this process."""
    return Evaluator(
        config.env,
        num_episodes=config.evaluation.episodes,
        seed=config.seed,
        num_envs=config.evaluation.envs,
        is_interrupted=is_interrupted,
    )


def make_async_evaluator(
    config: RLConfig, evaluator: Evaluator, tell: Callable[[str], None]
) -> AsyncEvaluator:
    """Return what evaluates in a process of its own, the same episodes."""
    return AsyncEvaluator(evaluator, config.model_dump(mode="json"), on_event=tell)
