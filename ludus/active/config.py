"""The config of active learning: that of supervised training for each round's fit, and what is asked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ludus.active.drift.measured import CalibrationConfig
from ludus.active.oracle import OracleSection
from ludus.active.selection.scores import Selection
from ludus.active.strategy import StrategySection, strategy_problems
from ludus.config.base import Count, ModelSection, Positive, PositiveFloat, StrictConfig
from ludus.nn.model import CLASS_LOSSES, FROM_MODEL
from ludus.supervised.config import SupervisedConfig

Share = Annotated[float, Field(gt=0, le=1)]


class CandidateConfig(StrictConfig):
    """A model that a run may begin from."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    """What the ranking calls it."""
    model: ModelSection
    """Its network."""
    weights: str | None
    """The directory of kept weights that it begins from, of a run's models; null begins from nothing."""


class StoppingConfig(StrictConfig):
    """When to stop asking before the last round."""

    max_labels: Positive | None
    """Ask for no more labels than this in all; null for no such budget."""
    target_accuracy: Share | None
    """Stop once the accuracy on the validation data reaches this; null for no such target."""
    stable_share: Share | None
    """Stop once this share of the pool is predicted as in the round before; null does not look."""
    stable_rounds: Positive
    """For how many rounds in a row it must be; 1 where `stable_share` is null."""


class ActiveConfig(SupervisedConfig):
    """Everything that decides a run of active learning."""

    max_rounds: Positive
    """How many rounds: in each, labels are asked for and the model is fitted to all there are."""
    initial_labels: Count
    """How many examples the first round asks for, drawn uniformly; 0 lets the strategy choose `queries`
    of them from the start, by the model as it begins."""
    queries: Positive
    """How many examples each later round asks for."""
    strategy: StrategySection
    """How they are chosen."""
    class_weights: list[PositiveFloat] | None
    """How much each class is wanted: a score is multiplied by the weight that the model expects for the
    example; null wants all alike."""
    candidate_pool: Positive | None
    """Look at this many examples of the pool, drawn anew each round, rather than at all; null: at all."""
    scoring_batch_size: Positive
    """How many examples of the pool the network is called with at once."""
    features_layer: str | None
    """The layer whose outputs are an example's features; null: what the last linear layer is given."""
    oracle: OracleSection
    """Who answers."""
    start: Literal["cold", "warm", "checkpoint"]
    """Whether each round begins from the weights that the run began with (cold), goes on (warm), or begins
    from those of `starting_checkpoint` (checkpoint)."""
    starting_checkpoint: str | None
    """The directory of kept weights, of a run's models, that each round begins from with start:
    checkpoint; null with any other start."""
    candidates: list[CandidateConfig]
    """Models to choose from, or one with weights to begin from; empty takes `model`."""
    new_head: Positive | None
    """Give each candidate a new last linear layer with this many outputs, drawn by the seed, where it was
    trained for other classes; leep and nce still ask the old one. null keeps the layer."""
    selection: Selection | None
    """By what score the candidate is chosen, once the first labels are there; null takes the first."""
    stopping: StoppingConfig | None
    """When to stop asking before the last round; null asks until it."""
    calibration: CalibrationConfig | None
    """How well the confidence of each round's model fits its accuracy on the test data; null does not
    look."""

    def problems(self) -> Iterator[str]:
        """Yield what only shows when keys are read together."""
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
        if calibration is not None and calibration.temperature and not self.with_validation:
            yield "'calibration.temperature' is fitted on validation data; turn 'with_validation' on"
        if (stopping := self.stopping) is not None:
            yield from self._stopping_problems(stopping)

    def _start_problems(self) -> Iterator[str]:
        if self.start != "checkpoint":
            if self.starting_checkpoint is not None:
                yield f"'starting_checkpoint' is given, and 'start' is {self.start}; set one to fit the other"
            return
        if self.starting_checkpoint is None:
            yield "'start' is checkpoint, and 'starting_checkpoint' is null; give a directory of weights"
        if self.candidates or self.new_head is not None:
            yield (
                "'start' is checkpoint, which is for one model as it is; with 'candidates' or 'new_head' use"
                " start: cold, and give each candidate its 'weights'"
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
        if stopping.target_accuracy is not None and not self.with_validation:
            yield "'stopping.target_accuracy' is measured on validation data; turn 'with_validation' on"
