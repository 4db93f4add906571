"""Sections of configs that fit a network to examples, and the keys that fitting reads."""

from __future__ import annotations

from typing import Annotated, Any, Protocol

from pydantic import Field

from ludus.config.base import NonNegativeFloat, Positive, PositiveFloat, StrictConfig
from ludus.judge.directions import Direction
from ludus.nn.engines.choice import EngineKey
from ludus.nn.memory_format import MemoryFormatKey
from ludus.nn.optimizer import OptimizerConfig
from ludus.nn.precision import Precision
from ludus.nn.schedules import ScheduleConfig


class EarlyStoppingConfig(StrictConfig):
    """Early stopping, before the last epoch."""

    metric: str
    """The monitored metric: any that the run logs, such as validation/epoch_loss or an evaluator's score."""
    patience: Positive
    """Stop after this many consecutive epochs without improvement."""
    mode: Direction | None
    """Whether lower (min) or higher (max) is better; null infers it from the metric's name."""
    min_delta: NonNegativeFloat
    """The smallest change that counts as an improvement."""


class BestModelConfig(StrictConfig):
    """The best models to keep, by a metric."""

    metric: str
    """The metric compared: any that the run logs, such as validation/epoch_loss or an evaluator's score."""
    mode: Direction | None
    """Whether lower (min) or higher (max) is better; null infers it from the metric's name."""
    keep: Positive
    """Number of best models to keep; models/best is the best of them."""


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
    learning_rate_schedule: ScheduleConfig
    gradient_checkpointing: list[str]
    precision: Precision
    engine: EngineKey
    memory_format: MemoryFormatKey
    ema_decay: float | None
    early_stopping: EarlyStoppingConfig | None
    best_model: BestModelConfig | None

    def replace(self, **changes: Any) -> Any:
        """Return the config with some keys changed."""
