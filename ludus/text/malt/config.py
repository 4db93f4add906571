"""The parameters of MALT."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from pydantic import Field

from ludus.config.base import NonNegativeFloat, PositiveFloat, StrictConfig
from ludus.text.config import TextHyperParameters


class MaltParameters(StrictConfig):
    """The trees of answers, and how agents learn from them."""

    responses_per_turn: Annotated[int, Field(ge=2, le=64)]
    """The number of answers sampled in each turn; a tree has this to the power of the rounds as leaves."""
    beta: PositiveFloat
    """The beta of DPO: how far the tuned model is kept from the one it began with."""
    nll_coef: NonNegativeFloat | None
    """The weight of the log-likelihood of the better answer in the loss; null leaves it to the provider."""

    def hyperparameters(self) -> dict[str, float | int]:
        """Return the hyperparameters of its jobs."""
        more = {} if self.nll_coef is None else {"nll_coef": self.nll_coef}
        return {"beta": self.beta, **more}


class MaltHyperParameters(TextHyperParameters):
    """Further parameters of MALT."""

    malt: MaltParameters
    """The trees of answers, and how agents learn from them."""

    def problems(self) -> Iterator[str]:
        """Yield problems that involve several keys."""
        before = [*super().problems()]
        yield from before
        if before:
            return
        leaves = self.malt.responses_per_turn ** self.handler().max_message_rounds
        if self.rl.rollouts_per_question != leaves:
            yield (
                f"'rl.rollouts_per_question' is {self.rl.rollouts_per_question}, but a tree of"
                f" {self.malt.responses_per_turn} answers a turn has {leaves} leaves in"
                f" {self.handler().max_message_rounds} rounds; set it to {leaves}"
            )
