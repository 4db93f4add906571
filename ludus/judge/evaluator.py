"""Evaluators: score the current model without changing its state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

from ludus.config.base import TrainerConfig
from ludus.config.registry import find
from ludus.core.errors import ConfigError, LudusError
from ludus.core.services import EvaluatorHere, Log
from ludus.store.models import read_model
from ludus.store.places import open_storage, parted

Outcome = tuple[float, dict[str, float]]
"""Outcome of an evaluation: its score, and all its metrics."""


class RunsEval:
    """Common interface of evaluators: set a model, load its weights, evaluate it, log the metrics."""

    model: Any = None
    logger: Log | None = None

    def evaluate(self, agent: object) -> Outcome:
        """Return the score and the metrics of this agent or model."""
        raise NotImplementedError

    def set_model(self, model: object) -> None:
        """Set the model that `run_eval` evaluates."""
        self.model = model

    def load_model(self, directory: str | Path) -> None:
        """Load the weights in this directory, such as a run's models/best, into the model that was set."""
        if self.model is None:
            raise LudusError(
                "load_model needs what the weights are for; call set_model(model) first"
            )
        root, name = parted(directory)
        weights, _ = read_model(open_storage(root), name)
        load = getattr(self.model, "load_weights", None) or self.model.load_state_dict
        load(weights)

    def set_logger(self, logger: Log) -> None:
        """Set the logger of `run_eval`; the metrics are written with the logger's next record."""
        self.logger = logger

    def run_eval(self) -> Outcome:
        """Evaluate the model that was set, calling `before_eval` and `after_eval`."""
        if self.model is None:
            raise LudusError("run_eval has nothing to evaluate; call set_model(model) first")
        self.before_eval()
        outcome = self.evaluate(self.model)
        if self.logger is not None:
            self.logger.record(outcome[1])
        self.after_eval(outcome)
        return outcome

    def before_eval(self) -> None:
        """Hook called first by run_eval; override it."""

    def after_eval(self, outcome: Outcome) -> None:
        """Hook called last by run_eval, with the score and the metrics; override it."""


class Evaluator(RunsEval):
    """Scores the model being trained, for any trainer: `trainer.set_evaluator(evaluator)`.

    Evaluator(config)            evaluates as runs of this config do
    Evaluator(score=function)    calls your function with the agent or model; it returns a number, or a
                                 number and a mapping of metrics
    """

    def __init__(
        self,
        config: TrainerConfig | None = None,
        *,
        score: Callable[[Any], Any] | None = None,
        metric: str = "eval/score",
    ) -> None:
        """Take a config or a function; `metric` is the name under which the function's number is logged."""
        if (config is None) == (score is None):
            raise ConfigError(
                "Evaluator takes a config, or score=a function of the agent or model; give one of them"
            )
        self.config = config
        self._metric = metric
        self._score: Callable[[Any], Any]
        if score is not None:
            self._score = score
        else:
            assert config is not None
            self._score = _make(config).evaluate

    @property
    def scorer(self) -> object:
        """The source of the score: the function, or the object whose method it is."""
        return getattr(self._score, "__self__", self._score)

    def evaluate(self, agent: object) -> Outcome:
        """Return the score and the metrics; the mode of the agent is restored afterwards."""
        return as_outcome(self._score(agent), metric=self._metric)


def find_trainer(config: object) -> type[Any]:
    """Return the trainer class for this config; raise ConfigError for anything but a config."""
    if not isinstance(config, TrainerConfig):
        raise ConfigError(
            f"an evaluator is made from a trainer's config, not from a {type(config).__name__};"
            " ludus.read_config and ludus.example return one"
        )
    return find("trainer", config.kind)


def _make(config: TrainerConfig) -> EvaluatorHere:
    make = getattr(find_trainer(config), "make_evaluator", None)
    if make is None:
        raise ConfigError(
            f"trainers of kind '{config.kind}' have no make_evaluator(config), so no evaluator can be made"
            " from their config; give Evaluator(score=...) a function"
        )
    return make(config)  # type: ignore[no-any-return]


def check_made_for(trainer: type[object], config: TrainerConfig, evaluator: object) -> None:
    """Raise ConfigError if the evaluator was made from the config of a trainer that evaluates differently."""
    made = getattr(evaluator, "config", None)
    if not isinstance(made, TrainerConfig):
        return
    theirs = getattr(find("trainer", made.kind), "make_evaluator", None)
    if theirs is not getattr(trainer, "make_evaluator", None):
        raise ConfigError(
            f"the evaluator was made from a config of kind '{made.kind}', so it cannot judge what a trainer"
            f" of kind '{config.kind}' trains; make it from that trainer's own config"
        )


def refuse_other_keys(config: TrainerConfig, evaluator: object, *, free: Collection[str]) -> None:
    """Raise ConfigError if the evaluator's config would rebuild something other than what is trained."""
    made = getattr(evaluator, "config", None)
    if isinstance(made, TrainerConfig):
        one, two = made.model_dump(), config.model_dump()
        keys = sorted({*one, *two} - {*free})
        if other := [key for key in keys if one.get(key) != two.get(key)]:
            raise ConfigError(
                f"an AsyncEvaluator rebuilds what it judges from its own config, which has other values of"
                f" {', '.join(other)} than the trainer's; make it from the trainer's own config"
            )


def as_outcome(result: object, *, metric: str) -> Outcome:
    """Normalise the result of an evaluator, a number, metrics, or both, to a score and metrics."""
    score: Any
    if isinstance(result, Mapping) and (metric in result or len(result) == 1):
        # Of metrics alone, the score is the judged metric, or the only one.
        score, metrics = result.get(metric, next(iter(result.values()))), result
    elif isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], Mapping):
        score, metrics = result
    else:
        score, metrics = result, {metric: result}
    try:
        return float(score), dict(metrics)
    except (TypeError, ValueError):
        raise LudusError(
            f"an evaluator returned {type(result).__name__} {str(result)[:60]}; return a number, a"
            f" mapping of metrics that holds {metric}, or a number and such a mapping"
        ) from None
