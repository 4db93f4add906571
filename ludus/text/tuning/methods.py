"""The methods of fine-tuning: supervised, and direct preference optimisation (DPO)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import NonNegativeFloat, PositiveFloat, StrictConfig


class SupervisedMethod(StrictConfig):
    """Learn what the assistant said: cross-entropy of its tokens."""

    kind: Literal["supervised"]
    """Supervised fine-tuning."""


class DpoMethod(StrictConfig):
    """Learn to prefer one answer to another: direct preference optimisation (DPO)."""

    kind: Literal["dpo"]
    """Direct preference optimisation."""
    beta: PositiveFloat
    """The weight of the reference model: the smaller, the further the model may move away from it."""
    nll_coef: NonNegativeFloat
    """The coefficient of the cross-entropy of the chosen answers; 0 lets their probability fall too."""


MethodSection = Annotated[SupervisedMethod | DpoMethod, Field(discriminator="kind")]
