"""Hyperband: successive halving in several brackets, each with another first rung."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.seeds import derive
from ludus.sweep.curve import MetricCurve
from ludus.sweep.pruner import Past, Pruner, check_counter, rung_reason
from ludus.sweep.pruners.asha import rungs


@register("pruner", "hyperband")
class Hyperband(Pruner):
    """Puts each trial into a bracket and compares it with those of the same bracket alone."""

    class Config(StrictConfig):
        """Options of Hyperband."""

        kind: Literal["hyperband"]
        """Successive halving in several brackets."""
        counter: Annotated[str, AfterValidator(check_counter)]
        """The counter that the rungs are in, such as opt_steps."""
        first_rung: Positive
        """The step at which runs of the strictest bracket are compared first."""
        last_rung: Positive
        """The step at which a run is whole: nothing is compared from there on."""
        reduction: Annotated[int, Field(ge=2)]
        """One run in this many goes on at each rung, and the next rung is this many times as far."""

        def problems(self) -> Iterator[str]:
            """Yield the conflicts between keys."""
            if self.last_rung <= self.first_rung:
                yield f"'last_rung' is {self.last_rung}, not after 'first_rung' {self.first_rung}; raise it"

    def num_brackets(self) -> int:
        """Return how many brackets there are."""
        num, step = 1, self.config.first_rung * self.config.reduction
        while step <= self.config.last_rung:
            num, step = num + 1, step * self.config.reduction
        return num

    def bracket_of(self, number: int) -> int:
        """Return the bracket of a trial; stricter ones, whose trials cost less, have more of them."""
        num = self.num_brackets()
        # As in Hyperband: bracket s of S has about reduction^(S-s) / (S-s+1) of the trials.
        shares = [self.config.reduction ** (num - 1 - s) * num // (num - s) for s in range(num)]
        place = derive(self._seed, "sweep/bracket", number) % sum(shares)
        for bracket, share in enumerate(shares):
            if place < share:
                return bracket
            place -= share
        raise AssertionError("the shares cover every place")

    def reason(self, number: int, own: MetricCurve, others: Sequence[Past]) -> str | None:
        options, bracket = self.config, self.bracket_of(number)
        curves = [other.curve for other in others if self.bracket_of(other.number) == bracket]
        first = options.first_rung * options.reduction**bracket
        for step in rungs(first, options.reduction, own, options.counter):
            if step >= options.last_rung:
                return None
            found = rung_reason(
                self, own, curves, counter=options.counter, step=step, reduction=options.reduction
            )
            if found is not None:
                return f"hyperband, bracket {bracket}: {found}"
        return None
