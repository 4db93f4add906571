"""Worker process of an asynchronous evaluation: rebuild a model from its config, and evaluate it."""

from __future__ import annotations

from typing import Any

from ludus.config.base import TrainerConfig, from_data
from ludus.core.abilities import EvaluatesBeside, EvaluationJob
from ludus.core.errors import ConfigError
from ludus.judge.evaluator import find_trainer
from ludus.process.child_main import Answer, Handler
from ludus.process.messages import unpack


def handlers() -> dict[str, Handler]:
    """Return the requests that this process handles."""
    return {"greet": lambda header, pieces: None, "rebuild": _rebuild, "evaluate": _evaluate}


def job_of(config: TrainerConfig) -> EvaluationJob:
    """Return the evaluation job of this config, from the trainer of its kind in the registry."""
    trainer: object = find_trainer(config)
    if not isinstance(trainer, EvaluatesBeside):
        raise ConfigError(
            f"trainers of kind '{config.kind}' have no evaluation_job(config), so they cannot be evaluated"
            " in another process; give Evaluator(score=...) a function"
        )
    return trainer.evaluation_job(config)


def _job(header: dict[str, Any]) -> EvaluationJob:
    return job_of(from_data(header["config"], source="the evaluator's config"))


def _rebuild(header: dict[str, Any], pieces: list[bytearray]) -> None:
    """Build everything once, to check that it can be built here."""
    _job(header).rebuild()


def _evaluate(header: dict[str, Any], pieces: list[bytearray]) -> Answer:
    weights = unpack(header["weights"], pieces[0])
    metrics = _job(header).evaluate(weights, is_interrupted=lambda: False)
    return {"metrics": dict(metrics)}, ()
