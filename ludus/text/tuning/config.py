"""The config of a fine-tuning run."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from ludus.config.base import Count, Positive, PositiveFloat, StrictConfig, TrainerConfig
from ludus.config.start import StartConfig
from ludus.core.errors import ConfigError, nearest
from ludus.fit.config import FitEvaluationConfig, ParameterGroupConfig
from ludus.judge.directions import direction_of
from ludus.nn.engines.choice import EngineKey
from ludus.nn.memory_format import MemoryFormatKey
from ludus.nn.optimizer import OptimizerSection
from ludus.nn.precision import Precision
from ludus.nn.schedules import LearningRateScheduleSection, too_long
from ludus.nn.schedules.plateau import Plateau
from ludus.nn.transformers_models import LoraConfig
from ludus.text.models.new_model import NewModelConfig
from ludus.text.tuning.majority import NUM_WORDS
from ludus.text.tuning.methods import MethodSection

TUNED = "tuned"
"""The directory of the tuned model in that of its run."""
_METRICS = {
    "supervised": ("loss", "token_accuracy"),
    "dpo": ("loss", "token_accuracy", "preference_accuracy", "margin", "nll"),
}


class LinesData(StrictConfig):
    """Examples from files of JSON lines, in the formats of OpenAI's fine-tuning or of TRL."""

    kind: Literal["lines"]
    """Files of JSON lines."""
    path: Annotated[str, Field(min_length=1)]
    """The file of training examples."""
    validation_path: Annotated[str, Field(min_length=1)] | None
    """The file of validation examples; null for none."""


class MajorityData(StrictConfig):
    """A built-in task: words of 11 letters a and b, to be accepted if most are a, else rejected."""

    kind: Literal["majority"]
    """The majority task."""
    examples: Positive
    """The number of training examples, each of another word."""
    validation_examples: Count
    """The number of validation examples, of further words."""

    def problems(self) -> Iterator[str]:
        """Yield that there are too few words."""
        if self.examples + self.validation_examples > NUM_WORDS:
            yield (
                f"'examples' is {self.examples} and 'validation_examples' {self.validation_examples}, but"
                f" there are {NUM_WORDS} words"
            )


class TextTuningConfig(TrainerConfig):
    """The complete config of a fine-tuning run."""

    may_change: ClassVar[tuple[str, ...]] = ("learning_rate_schedule", "max_grad_norm")

    model: Annotated[str, Field(min_length=1)] | None
    """The directory of the model to tune, ludus's or one of transformers; null makes `new_model`."""
    new_model: NewModelConfig | None
    """The small model to make and train from random weights, where `model` is null; else null."""
    lora: LoraConfig | None
    """Train low-rank adapters (LoRA, through PEFT) alone; null trains all weights."""
    data: Annotated[LinesData | MajorityData, Field(discriminator="kind")]
    """The examples."""
    method: MethodSection
    """The method of fine-tuning."""
    batch_size: Positive
    """How many examples each batch holds; of preferences, how many pairs."""
    max_epochs: Positive
    """Number of passes over the training data."""
    max_opt_steps: Positive | None
    """Stop after this many optimisation steps, even within an epoch; null for no such limit."""
    accumulate: Positive
    """Gradient accumulation: batches per optimisation step; gradients are averaged."""
    max_grad_norm: PositiveFloat | None
    """Clip the gradient to this norm; null does not clip."""
    optimizer: OptimizerSection
    """The optimizer of the weights."""
    learning_rate_schedule: LearningRateScheduleSection
    """How the learning rate changes with the optimisation steps."""
    precision: Precision
    """The number type of the computation; weights stay float32, except with bfloat16_pure."""
    evaluate_every_epochs: Count
    """Evaluate on the validation examples after every this many epochs, and after the last; 0 means never."""
    evaluation: FitEvaluationConfig
    """How the model is judged: the best models to keep, of which the best is saved, and early stopping."""
    keep_every_epochs: Count
    """Save the weights in models/ every this many epochs, and at the end; 0 never does."""
    log_every_opt_steps: Count
    """Log the mean training metrics every this many optimisation steps; 0 only by epoch."""

    # What fitting reads of other trainers' configs, and is fixed here.
    @property
    def engine(self) -> EngineKey:
        """Batches differ in length, so that no engine could replay an update."""
        return "eager"

    @property
    def memory_format(self) -> MemoryFormatKey:
        """There are no images."""
        return "contiguous"

    @property
    def ema_decay(self) -> float | None:
        """No average of weights is kept."""
        return None

    @property
    def parameter_groups(self) -> list[ParameterGroupConfig]:
        """All parameters are trained alike."""
        return []

    @property
    def gradient_checkpointing(self) -> list[str]:
        """No activation is recomputed."""
        return []

    @property
    def start(self) -> StartConfig | None:
        """A run starts from the directory of a model."""
        return None

    def count_steps(self, length: int | None) -> int:
        """Return the number of optimisation steps of a run with epochs of this many batches."""
        assert length is not None
        steps = self.max_epochs * -(-length // self.accumulate)
        return steps if self.max_opt_steps is None else min(steps, self.max_opt_steps)

    def refuse_unreached(self, length: int) -> None:
        """Raise ConfigError for a key that a run with epochs of this many batches never reaches."""
        most = self.max_epochs * -(-length // self.accumulate)
        if self.max_opt_steps is not None and self.max_opt_steps > most:
            raise ConfigError(
                f"'max_opt_steps' is {self.max_opt_steps}, but 'max_epochs' {self.max_epochs} makes {most}"
                " optimisation steps: it would never be reached; raise the latter, or set 'max_opt_steps'"
                " to null"
            )
        count, name = self.count_steps(length), "learning_rate_schedule"
        for problem in too_long(self.learning_rate_schedule, name, count, "optimisation steps"):
            raise ConfigError(problem)

    def metrics(self) -> list[str]:
        """Return the metrics that a run logs repeatedly."""
        names = _METRICS[self.method.kind]
        found = [f"train/epoch_{name}" for name in names] + [f"train/{name}" for name in names]
        found += ["train/learning_rate", "train/grad_norm"]
        if self.evaluate_every_epochs:
            found += [f"validation/epoch_{name}" for name in names]
        return found

    def monitors(self) -> dict[str, str]:
        """Return the metrics on which something depends, by the key that names each."""
        found = {f"evaluation.{key}": metric for key, metric, _ in self.evaluation.monitored()}
        if isinstance(schedule := self.learning_rate_schedule, Plateau):
            found["learning_rate_schedule.metric"] = schedule.metric
        return found

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        if (self.model is None) == (self.new_model is None):
            both = "both null" if self.model is None else "both given"
            yield f"'model' and 'new_model' are {both}; give the directory of a model, or a new one"
        for key, metric in self.monitors().items():
            if metric not in self.metrics():
                yield (
                    f"'{key}' is {metric}, which this run never writes; it writes"
                    f" {', '.join(sorted(self.metrics()))}.{nearest(metric, self.metrics())}"
                )
        for key, metric, mode in self.evaluation.monitored():
            try:
                direction_of(metric, mode)
            except ConfigError as error:
                yield f"'evaluation.{key}' is {metric}: {error}"
        yield from self.evaluation.unused("evaluate_every_epochs", self.evaluate_every_epochs)
        if self.settings.workers:
            yield (
                f"'settings.workers' is {self.settings.workers}, but the examples of a fine-tuning run are in"
                " memory, and no process loads them; set it to 0"
            )
        has_validation = (
            self.data.validation_path is not None
            if isinstance(self.data, LinesData)
            else self.data.validation_examples > 0
        )
        if self.evaluate_every_epochs and not has_validation:
            key = "validation_path" if isinstance(self.data, LinesData) else "validation_examples"
            yield (
                f"'evaluate_every_epochs' is {self.evaluate_every_epochs}, but there are no validation"
                f" examples; set 'data.{key}', or the former to 0"
            )
        if self.lora is not None and self.new_model is not None:
            yield "'lora' is given with 'new_model', whose random weights would be frozen; set one to null"
        if self.optimizer.kind == "schedule_free_adamw":
            yield (
                "'optimizer.kind' is schedule_free_adamw, whose mean of weights is not what is saved here;"
                " use adamw"
            )
        if self.lora is not None and self.precision == "bfloat16_pure":
            yield "'precision' is bfloat16_pure, which is for training all weights; use bfloat16 with 'lora'"
