"""The parameters of policy gradients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import (
    Fraction,
    NonNegativeFloat,
    Positive,
    PositiveFloat,
    StrictConfig,
)
from ludus.config.registry import find
from ludus.config.sections import kind_of
from ludus.text.config import TextHyperParameters
from ludus.text.training_client import AdamStep


class ImportanceSampling(StrictConfig):
    """The policy gradient, with the importance weight of each token."""

    kind: Literal["importance_sampling"]
    """The ratio of the probabilities now and when sampled, times the advantage."""

    def options(self) -> dict[str, float]:
        """Return the options of the loss."""
        return {}


class ClippedSurrogate(StrictConfig):
    """The clipped surrogate objective of PPO."""

    kind: Literal["ppo"]
    """The same ratio, clipped."""
    clip: Annotated[float, Field(gt=0, lt=1)]
    """How far the ratio counts, from 1."""

    def options(self) -> dict[str, float]:
        """Return the options of the loss."""
        return {"clip_low_threshold": 1 - self.clip, "clip_high_threshold": 1 + self.clip}


class AdamParameters(StrictConfig):
    """The optimizer, which the server applies."""

    learning_rate: PositiveFloat
    """The learning rate of the first iteration."""
    anneal: Literal["none", "linear"]
    """How the learning rate changes with the iterations: not, or linear to 0 after the last that learns."""
    beta1: Fraction
    """The decay of the mean of gradients."""
    beta2: Fraction
    """The decay of the mean of squared gradients."""
    eps: PositiveFloat
    """Added to the denominator."""
    weight_decay: NonNegativeFloat
    """The share of the weights, times the learning rate, that decays at each step."""
    max_grad_norm: PositiveFloat | None
    """Clip the gradient to this norm; null does not clip."""

    def factor(self, iteration: int, num_learning: int) -> float:
        """Return the factor of the learning rate in an iteration, counted from 0, of so many that learn."""
        return 1.0 if self.anneal == "none" else 1.0 - iteration / num_learning

    def step(self, factor: float = 1.0) -> AdamStep:
        """Return the numbers of one step, at a factor of the learning rate."""
        return AdamStep(
            learning_rate=self.learning_rate * factor,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            weight_decay=self.weight_decay,
            max_grad_norm=self.max_grad_norm,
        )


class PolicyGradientParameters(StrictConfig):
    """How agents learn from their own samples."""

    loss: Annotated[ImportanceSampling | ClippedSurrogate, Field(discriminator="kind")]
    """The loss of a token."""
    baseline: Literal["question", "iteration"]
    """An advantage is the reward less the mean of the episodes about the question, or of all."""
    normalise: bool
    """Divide advantages by the standard deviation of the rewards among the same episodes."""
    num_epochs: Positive
    """The number of passes over the answers of an iteration."""
    minibatch_size: Positive
    """The number of answers of a gradient step."""
    optimizer: AdamParameters
    """The optimizer."""
    lora_rank: Positive | None
    """The rank of a LoRA adapter to train; null trains all weights, where the server can."""


class PolicyGradientHyperParameters(TextHyperParameters):
    """Further parameters of policy gradients."""

    policy_gradient: PolicyGradientParameters
    """How agents learn from their own samples."""

    @property
    def training_epochs(self) -> int:
        """The number of passes over the answers of an iteration."""
        return self.policy_gradient.num_epochs

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        yield from super().problems()
        for key in ("max_cost", "max_tokens"):
            if (most := getattr(self.budget, key)) is not None:
                yield (
                    f"'budget.{key}' is {most}, but the tokens of gradient steps are not counted, so it could"
                    " be exceeded; set it to null, and see `ludus train --dry-run`"
                )
        kind = kind_of(self.provider)
        if not hasattr(find("provider", kind), "create_training"):
            yield (
                f"'provider.kind' is {kind}, whose models are not trained by gradients; use tinker: a server"
                " of Tinker's API, which `ludus serve` is too"
            )
        if self.policy_gradient.baseline == "question" and self.rl.rollouts_per_question < 2:
            yield (
                "'rl.rollouts_per_question' is 1, so an episode is its own baseline and nothing is learned;"
                " raise it, or set 'policy_gradient.baseline' to iteration"
            )
        given = {
            name: getattr(self.fine_tuning, name) for name in type(self.fine_tuning).model_fields
        }
        for name, value in given.items():
            if value is not None:
                yield (
                    f"'fine_tuning.{name}' is {value}, but there are no fine-tuning jobs; set it to null, and"
                    " see 'policy_gradient'"
                )
        for key in ("fine_tune_from_scratch", "fine_tune_on_all_previous_rollouts"):
            if getattr(self.text_rl, key):
                yield f"'text_rl.{key}' is true, but policy gradients are on-policy; set it to false"
