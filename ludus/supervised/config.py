"""The config of supervised training."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar

from pydantic import Field

from ludus.config.base import (
    Count,
    DatasetSection,
    ModelSection,
    Positive,
    PositiveFloat,
    TrainerConfig,
)
from ludus.config.start import StartConfig
from ludus.core.errors import ConfigError, nearest
from ludus.fit.config import FitEvaluationConfig, ParameterGroupConfig
from ludus.judge.directions import Direction, direction_of
from ludus.nn.engines.choice import EngineKey
from ludus.nn.groups import is_inside
from ludus.nn.memory_format import MemoryFormatKey
from ludus.nn.model import CLASS_LOSSES, Loss
from ludus.nn.optimizer import AnyOptimizerSection
from ludus.nn.precision import Precision
from ludus.nn.schedules import LearningRateScheduleSection, too_long
from ludus.nn.schedules.plateau import Plateau
from ludus.session.device import Tf32


class SupervisedConfig(TrainerConfig):
    """The complete config of a supervised run."""

    may_change: ClassVar[tuple[str, ...]] = ("learning_rate_schedule", "max_grad_norm")

    experiment: Annotated[str, Field(min_length=1, max_length=80)]
    """The name of the experiment, part of the names of saved models."""
    data: DatasetSection | None
    """The data set; null if the script passes its own loaders."""
    model: ModelSection | None
    """The network; null if the script passes its own model."""
    loss: Loss
    """The loss function to minimise; from_model uses the `loss` that the model itself returns."""
    batch_size: Positive
    """How many examples each batch holds; a loader of your own keeps its own size."""
    drop_last: bool
    """Drop the last batch of an epoch if it is not full."""
    max_epochs: Positive
    """Number of passes over the training data."""
    max_opt_steps: Positive | None
    """Stop after this many optimisation steps, even within an epoch; null for no such limit."""
    accumulate: Positive
    """Gradient accumulation: batches per optimisation step; gradients are averaged."""
    max_grad_norm: PositiveFloat | None
    """Clip the gradient to this norm; null does not clip."""
    optimizer: AnyOptimizerSection
    """The optimizer of the weights."""
    parameter_groups: list[ParameterGroupConfig]
    """Parameter groups with their own learning rate, or frozen; empty trains all alike."""
    start: StartConfig | None
    """The run to start from; null starts from new weights."""
    learning_rate_schedule: LearningRateScheduleSection
    """How the learning rate changes with the optimisation steps."""
    gradient_checkpointing: list[Annotated[str, Field(min_length=1)]]
    """Modules whose activations are recomputed in the backward pass, not stored: less memory, up to a third
    more time, the same numbers; `blocks.*` is each module in `blocks`, each recomputed separately."""
    precision: Precision
    """The number type of the computation; weights stay float32, except with bfloat16_pure: weights, gradients
    and moments (not of norm layers) are bfloat16, half the memory, steps below 1/256 of a weight are lost."""
    tf32: Tf32
    """Use TF32 for float32 products on CUDA, with 10 bits of mantissa instead of 23: several times as
    fast on tensor cores; true: all, convolutions: those of convolutions and RNNs, false: none."""
    engine: EngineKey
    """The engine that executes the update: auto chooses by run length and device, eager calls it, tape
    (CPU) and graph (CUDA) replay it without Python, compiled compiles it, which takes some seconds."""
    memory_format: MemoryFormatKey
    """Memory format of images and convolution weights: contiguous, channels_last, or auto, which on
    CUDA chooses the faster of the two."""
    ema_decay: Annotated[float, Field(gt=0, lt=1)] | None
    """Evaluate and save a debiased exponential moving average (EMA) of the weights; null for none."""
    evaluate_every_epochs: Count
    """Evaluate on the validation data after every this many epochs, and after the last; 0 means never."""
    evaluation: FitEvaluationConfig
    """How the model is judged: the best models to keep, and early stopping."""
    keep_every_epochs: Count
    """Save the weights every this many epochs, and at the end; 0 never does."""
    log_every_opt_steps: Count
    """Log the mean training metrics every this many optimisation steps; 0 only by epoch."""

    def count_steps(self, length: int | None) -> int:
        """Return the maximum number of optimisation steps of a run; 0 if unknown.

        `length` is the number of batches in an epoch, None if the data does not say.
        """
        limits = [self.max_opt_steps] if self.max_opt_steps is not None else []
        if length is not None:
            limits.append(self._steps_of_epochs(length))
        if not limits and getattr(self.learning_rate_schedule, "total_steps", 0) is None:
            raise ConfigError(
                "'learning_rate_schedule.total_steps' is null, which means the whole run, but the data does"
                " not say how long an epoch is; set 'learning_rate_schedule.total_steps' or 'max_opt_steps'"
            )
        return min(limits, default=0)

    def _steps_of_epochs(self, length: int) -> int:
        return self.max_epochs * -(-length // self.accumulate)

    def refuse_unreached(self, length: int | None) -> None:
        """Raise ConfigError for a key that a run with epochs of this many batches never reaches."""
        most = self._steps_of_epochs(length) if length else None
        if most is not None and self.max_opt_steps is not None and self.max_opt_steps > most:
            raise ConfigError(
                f"'max_opt_steps' is {self.max_opt_steps}, but 'max_epochs' {self.max_epochs} makes {most}"
                " optimisation steps: it would never be reached; raise the latter, or set 'max_opt_steps'"
                " to null"
            )
        count = self.count_steps(length)
        schedule, name = self.learning_rate_schedule, "learning_rate_schedule"
        for problem in too_long(schedule, name, count, "optimisation steps"):
            raise ConfigError(problem)

    def monitors(self) -> dict[str, str]:
        """Return the metrics on which something depends, by the key that names each."""
        return {key: metric for key, metric, _ in self._monitored()}

    def _monitored(self) -> Iterator[tuple[str, str, Direction | None]]:
        """Yield the key of each monitored metric, the metric, and its mode."""
        for key, metric, mode in self.evaluation.monitored():
            yield f"evaluation.{key}", metric, mode
        if isinstance(schedule := self.learning_rate_schedule, Plateau):
            yield "learning_rate_schedule.metric", schedule.metric, schedule.mode

    def refuse_unlogged(self) -> None:
        """Raise ConfigError for a monitored metric that no run of a plain model logs."""
        known = self._plain_metrics()
        unlogged = [
            f"'{key}' is {metric}" for key, metric in self.monitors().items() if metric not in known
        ]
        if unlogged:
            raise ConfigError(
                f"{' and '.join(unlogged)}, which this run never writes; it writes {', '.join(sorted(known))}"
            )

    def _plain_metrics(self) -> list[str]:
        """Return the metrics that a run of a plain model logs repeatedly."""
        known = [*self.metrics_of("train"), "train/loss", "train/learning_rate"]
        if self.precision != "float16":
            known.append("train/grad_norm")
        return known + (self.metrics_of("validation") if self.evaluate_every_epochs else [])

    def metrics_of(self, role: str) -> list[str]:
        """Return the metrics of an epoch over the data of this role."""
        names = ["loss", "accuracy"] if self.loss in CLASS_LOSSES else ["loss"]
        return [f"{role}/epoch_{name}" for name in names]

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        for key, metric, mode in self._monitored():
            try:
                direction_of(metric, mode)
            except ConfigError as error:
                meant = nearest(metric, self._plain_metrics())
                yield f"'{key}' is {metric}: {error}{'.' if meant else ''}{meant}"
        yield from self._overlaps()
        if self.optimizer.kind == "schedule_free_adamw" and self.ema_decay is not None:
            yield (
                "'optimizer.kind' is schedule_free_adamw, which evaluates a mean of the weights already;"
                " set 'ema_decay' to null"
            )
        if self.optimizer.kind == "schedule_free_adamw" and self.precision == "bfloat16_pure":
            yield (
                "'optimizer.kind' is schedule_free_adamw, whose mean of weights does not move in bfloat16;"
                " set 'precision' to bfloat16, or use adamw"
            )
        if (
            self.data is not None
            and self.evaluate_every_epochs
            and getattr(self.data, "validation_fraction", None) == 0
            and getattr(self.data, "validation_path", None) is None
        ):
            yield (
                f"'evaluate_every_epochs' is {self.evaluate_every_epochs}, but 'data.validation_fraction' is"
                " 0; raise the latter, or set the former to 0"
            )
        outputs = getattr(self.model, "outputs", None)
        if self.loss == "cross_entropy" and outputs == 1:
            yield "'model.outputs' is 1, but cross_entropy needs one output a class; use binary_cross_entropy"

    def _overlaps(self) -> Iterator[str]:
        """Yield the prefixes that overlap with an earlier one."""
        prefixes = [group.prefix for group in self.parameter_groups]
        for index, prefix in enumerate(prefixes):
            for earlier, other in enumerate(prefixes[:index]):
                if is_inside(prefix, inside=other) or is_inside(other, inside=prefix):
                    yield (
                        f"'parameter_groups.{index}.prefix' is {prefix} and"
                        f" 'parameter_groups.{earlier}.prefix' is {other}, so some parameters are in"
                        " both groups; name each in one"
                    )
