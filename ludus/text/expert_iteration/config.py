"""The parameters of expert iteration."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import NonNegativeFloat, PositiveShare, Share, StrictConfig
from ludus.text.config import TextHyperParameters


class ThresholdSelection(StrictConfig):
    """Imitate every episode with at least this reward."""

    kind: Literal["threshold"]
    """By a threshold of the reward."""
    reward_threshold: float
    """The least reward of an episode, summed over its rounds, for an agent to imitate itself in it."""


class WeightedSelection(StrictConfig):
    """Draw episodes in proportion to their reward above the lowest, with replacement."""

    kind: Literal["weighted"]
    """By draws in proportion to the reward."""
    size_factor: PositiveShare
    """The number of draws, as a share of the episodes."""
    epsilon: NonNegativeFloat
    """Added to every weight, divided by the number of episodes, so that none has no chance."""


SelectionSection = Annotated[ThresholdSelection | WeightedSelection, Field(discriminator="kind")]


class GuessReplacement(StrictConfig):
    """Replace decisions of verifiers by the true label, in a share of the episodes that is annealed."""

    proportion: Share
    """The share of the episodes in the first iteration."""
    annealing: Literal["none", "linear", "exponential"]
    """How it changes with iteration t: not, max(proportion - rate * t, 0), or proportion * (1 - rate)^t."""
    rate: Share
    """The rate of the annealing; 0.0 for none."""

    def problems(self) -> Iterator[str]:
        """Yield each key that has no effect."""
        if self.annealing == "none" and self.rate:
            yield f"'rate' is {self.rate:g}, but 'annealing' is none; set it to 0.0"

    def share(self, iteration: int) -> float:
        """Return the share of an iteration, counted from 0."""
        if self.annealing == "linear":
            return max(self.proportion - self.rate * iteration, 0.0)
        if self.annealing == "exponential":
            return self.proportion * float((1.0 - self.rate) ** iteration)
        return self.proportion


class ExpertIterationParameters(StrictConfig):
    """What is imitated."""

    selection: SelectionSection
    """The episodes that each agent learns from."""
    verifier_guess_replacement: GuessReplacement | None
    """Replace decisions of verifiers by the true label before the selection; null: never."""


class ExpertIterationHyperParameters(TextHyperParameters):
    """Further parameters of expert iteration."""

    expert_iteration: ExpertIterationParameters
    """What is imitated."""
