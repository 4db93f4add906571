"""The config of active learning: supervised training for each round's fit, and the queries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ludus.active.oracle import OracleSection
from ludus.active.selection.scores import Selection
from ludus.active.strategy import StrategySection, strategy_problems
from ludus.config.base import (
    Count,
    ModelSection,
    Positive,
    PositiveFloat,
    PositiveShare,
    StrictConfig,
)
from ludus.nn.model import CLASS_LOSSES, FROM_MODEL
from ludus.supervised.config import SupervisedConfig


class CandidateConfig(StrictConfig):
    """A candidate model for model selection."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    """Its name in the ranking."""
    model: ModelSection
    """Its network."""
    weights: str | None
    """The directory of saved weights, of a run's models, to start from; null starts from scratch."""


class StoppingConfig(StrictConfig):
    """Stopping criteria, before the last round."""

    max_labels: Positive | None
    """The label budget: stop after this many labels in total; null for no budget."""
    target_accuracy: PositiveShare | None
    """Stop once the accuracy on the validation data reaches this; null for no such target."""
    stable_share: PositiveShare | None
    """Stop once this share of the pool has the same prediction as in the round before; null: off."""
    stable_rounds: Positive
    """The number of consecutive rounds required for it; 1 where `stable_share` is null."""


class CalibrationConfig(StrictConfig):
    """How calibration is measured."""

    bins: Positive
    """Number of equal-width bins of confidence."""
    temperature: bool
    """Temperature scaling: fit a temperature on the validation data and log the errors with it too."""


class ActiveConfig(SupervisedConfig):
    """The complete config of an active learning run."""

    max_rounds: Positive
    """Number of rounds: each queries labels and fits the model to all labels so far."""
    initial_labels: Count
    """Number of queries of the first round, sampled uniformly; 0 lets the strategy choose `queries`
    of them from the start, by the untrained model."""
    queries: Positive
    """How many examples each later round asks for."""
    strategy: StrategySection
    """The query strategy that chooses them."""
    class_weights: list[PositiveFloat] | None
    """Class weights: an example's score is multiplied by its expected weight under the model's predicted
    probabilities; null weights all alike."""
    candidate_pool: Positive | None
    """Score a random subset of this many examples of the pool, resampled each round; null: score all."""
    scoring_batch_size: Positive
    """Batch size for scoring the pool."""
    features_layer: str | None
    """The layer whose outputs are an example's features; null: the inputs of the last linear layer."""
    oracle: OracleSection
    """The oracle that labels the queries."""
    round_start: Literal["cold", "warm", "checkpoint"]
    """The weights that each round starts from: the run's initial ones (cold), those of the round before
    (warm), or those of `starting_checkpoint` (checkpoint)."""
    starting_checkpoint: str | None
    """The directory of saved weights, of a run's models, that each round starts from with round_start:
    checkpoint; null with any other."""
    candidates: list[CandidateConfig]
    """Candidates for model selection, or one model with weights to start from; empty uses `model`."""
    new_head: Positive | None
    """Replace each candidate's last linear layer by a new one with this many outputs, initialised by the
    seed, if it was trained for other classes; leep and nce still use the old one. null keeps the layer."""
    selection: Selection | None
    """The transferability score that selects the candidate after the first labels; null takes the first."""
    stopping: StoppingConfig | None
    """Stopping criteria before the last round; null for none."""
    calibration: CalibrationConfig | None
    """Calibration of each round's model on the test data: how well its confidence fits its accuracy;
    null does not measure it."""

    def problems(self) -> Iterator[str]:
        """Yield the conflicts between keys."""
        yield from super().problems()
        if self.precision == "bfloat16_pure":
            yield "'precision' bfloat16_pure is not for models that are asked for scores; use bfloat16"
        if self.max_opt_steps is not None:
            yield (
                "'max_opt_steps' counts over all rounds here, and ends none; set it to null, and use"
                " max_epochs"
            )
        if self.candidates and self.model is not None:
            yield "'candidates' and 'model' are both given; set 'model' to null, or leave 'candidates' empty"
        names = [one.name for one in self.candidates]
        for name in dict.fromkeys(names):
            if names.count(name) > 1:
                yield f"two candidates are named {name}; give each a name of its own"
        if self.new_head is not None and self.model is not None:
            yield "'new_head' is for candidates with weights; set it to null, and 'model.outputs' as you like"
        if self.new_head == 1 and self.loss == "cross_entropy":
            yield "'new_head' is 1, but cross_entropy needs one output a class; use binary_cross_entropy"
        yield from self._start_problems()
        if self.selection is not None and not self.initial_labels:
            yield "'selection' compares candidates on the first labels; set 'initial_labels' to 1 or more"
        if getattr(self.data, "kind", None) == "huggingface":
            yield "'data' is huggingface, whose examples are dicts; give an active learner pairs by a loader"
        if self.loss == FROM_MODEL:
            yield "'loss' is from_model, and an active learner scores outputs by itself; name another loss"
        has_classes = self.loss in CLASS_LOSSES
        yield from strategy_problems(
            self.strategy, self.class_weights, self.loss if not has_classes else None
        )
        if self.selection in ("leep", "nce", "h_score") and not has_classes:
            yield f"'selection' {self.selection} is for classes, and the loss is {self.loss}; use logme"
        if (calibration := self.calibration) is not None and not has_classes:
            yield f"'calibration' is for classes, and the loss is {self.loss}; set it to null"
        if calibration is not None and calibration.temperature and not self.evaluate_every_epochs:
            yield "'calibration.temperature' is fitted on validation data; set 'evaluate_every_epochs' to 1"
        if (stopping := self.stopping) is not None:
            yield from self._stopping_problems(stopping)

    def _start_problems(self) -> Iterator[str]:
        if self.start is not None and (self.candidates or self.round_start == "checkpoint"):
            one = "'candidates'" if self.candidates else "'round_start' checkpoint"
            yield (
                f"'start' and {one} both say what weights there are at first; set 'start' to null, or leave"
                " the other out"
            )
        if self.start is not None and self.start.optimizer and self.round_start != "warm":
            yield (
                f"'start.optimizer' is true, but with 'round_start' {self.round_start} each round begins with"
                " moments of its own; set it to false, or 'round_start' to warm"
            )
        if self.round_start != "checkpoint":
            if self.starting_checkpoint is not None:
                yield (
                    f"'starting_checkpoint' is given, and 'round_start' is {self.round_start}; set one to fit"
                    " the other"
                )
            return
        if self.starting_checkpoint is None:
            yield (
                "'round_start' is checkpoint, and 'starting_checkpoint' is null; give a directory of weights"
            )
        if self.candidates or self.new_head is not None:
            yield (
                "'round_start' is checkpoint, which is for one model as it is; with 'candidates' or"
                " 'new_head' use round_start: cold, and give each candidate its 'weights'"
            )

    def _stopping_problems(self, stopping: StoppingConfig) -> Iterator[str]:
        of_classes = {
            "target_accuracy": stopping.target_accuracy,
            "stable_share": stopping.stable_share,
        }
        rules = {"max_labels": stopping.max_labels, **of_classes}
        if all(rule is None for rule in rules.values()):
            yield f"'stopping' has nothing to stop by; set one of {', '.join(rules)}, or 'stopping' to null"
        if stopping.stable_rounds > 1 and stopping.stable_share is None:
            yield (
                f"'stopping.stable_rounds' is {stopping.stable_rounds}, and 'stopping.stable_share' is null,"
                " so no round counts as stable; give the share, or set the former to 1"
            )
        if stopping.max_labels is not None and stopping.max_labels < self.initial_labels:
            yield (
                f"'stopping.max_labels' is {stopping.max_labels}, and 'initial_labels' {self.initial_labels}"
                " are asked for at once; raise the former"
            )
        if self.loss not in CLASS_LOSSES:
            for key in [key for key, rule in of_classes.items() if rule is not None]:
                yield (
                    f"'stopping.{key}' is for classes, and the loss is {self.loss}; set it to null, and stop"
                    " by max_labels"
                )
        if stopping.target_accuracy is not None and not self.evaluate_every_epochs:
            yield (
                "'stopping.target_accuracy' is measured on validation data; set 'evaluate_every_epochs' to 1"
            )
