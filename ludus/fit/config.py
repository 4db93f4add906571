"""Sections of configs that fit a network to examples, and the keys that fitting reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Protocol

from pydantic import Field

from ludus.config.base import Count, PositiveFloat, StrictConfig
from ludus.config.evaluation import EvaluationConfig
from ludus.config.start import StartConfig
from ludus.judge.directions import Direction
from ludus.nn.engines.choice import EngineKey
from ludus.nn.memory_format import MemoryFormatKey
from ludus.nn.optimizer import OptimizerConfig
from ludus.nn.precision import Precision
from ludus.nn.schedules import ScheduleConfig


class FitEvaluationConfig(EvaluationConfig):
    """How a fit is judged, by metrics that it logs: its best models, and when it ends early."""

    metric: str
    """The metric that decides: any that the run logs, as validation/epoch_loss or an evaluator's score."""
    mode: Direction | None
    """Whether lower (min) or higher (max) is better; null infers it from the metric's name."""
    keep: Count
    """Number of best models to keep; models/best is the best of them, and 0 keeps none."""
    stopping_metric: str | None
    """Another metric that decides for `patience`; null: the same as `metric`."""
    stopping_mode: Direction | None
    """Whether lower (min) or higher (max) of it is better; null infers it from its name, and is the only
    value without a `stopping_metric`."""
    target: float | None
    """Stop once the metric reaches this; null never does."""

    @property
    def patience_metric(self) -> tuple[str, Direction | None]:
        """The metric that `patience` counts by, and its mode."""
        if self.stopping_metric is None:
            return self.metric, self.mode
        return self.stopping_metric, self.stopping_mode

    def monitored(self) -> Iterator[tuple[str, str, Direction | None]]:
        """Yield the key of each metric that decides anything, the metric, and its mode."""
        is_patient, has_own = self.patience is not None, self.stopping_metric is not None
        if self.keep or self.target is not None or (is_patient and not has_own):
            yield "metric", self.metric, self.mode
        if is_patient and has_own:
            yield "stopping_metric", *self.patience_metric

    def problems(self) -> Iterator[str]:
        """Yield each key that has no effect because of the others."""
        yield from super().problems()
        if self.stopping_metric is not None and self.patience is None:
            yield (
                f"'stopping_metric' is {self.stopping_metric}, which has no effect where 'patience' is null;"
                " set it to null, or set 'patience'"
            )
        if self.stopping_mode is not None and self.stopping_metric is None:
            yield (
                f"'stopping_mode' is {self.stopping_mode}, but 'stopping_metric' is null, so 'metric' and"
                " 'mode' decide; set it to null, or name the metric"
            )


class ParameterGroupConfig(StrictConfig):
    """A group of parameters with its own learning rate, or frozen."""

    prefix: Annotated[str, Field(min_length=1)]
    """The name of a parameter of the network, or of a module: then all parameters in it."""
    rate: PositiveFloat
    """The factor by which the learning rate is multiplied."""
    frozen: bool
    """Do not train them, until a hook unfreezes them."""


class FitConfig(Protocol):
    """The keys that fitting reads, under the names and with the meaning of SupervisedConfig."""

    max_epochs: int
    max_opt_steps: int | None
    accumulate: int
    max_grad_norm: float | None
    optimizer: OptimizerConfig
    parameter_groups: list[ParameterGroupConfig]
    start: StartConfig | None
    learning_rate_schedule: ScheduleConfig
    gradient_checkpointing: list[str]
    precision: Precision
    engine: EngineKey
    memory_format: MemoryFormatKey
    ema_decay: float | None
    evaluation: FitEvaluationConfig

    def replace(self, **changes: Any) -> Any:
        """Return the config with some keys changed."""
