"""ASHA: asynchronous successive halving; at each rung one run in `reduction` goes on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ludus.config.base import Positive, StrictConfig
from ludus.config.registry import register
from ludus.sweep.curve import MetricCurve
from ludus.sweep.pruner import Past, Pruner, check_counter, has_passed, rung_reason


@register("pruner", "asha")
class Asha(Pruner):
    """Compares runs at the steps first_rung, first_rung * reduction, ...: the first values logged there."""

    class Config(StrictConfig):
        """Options of ASHA."""

        kind: Literal["asha"]
        """Asynchronous successive halving."""
        counter: Annotated[str, AfterValidator(check_counter)]
        """The counter that the rungs are in, such as opt_steps."""
        first_rung: Positive
        """The step at which runs are compared first."""
        reduction: Annotated[int, Field(ge=2)]
        """One run in this many goes on at each rung, and the next rung is this many times as far."""

    def reason(self, number: int, own: MetricCurve, others: Sequence[Past]) -> str | None:
        options, curves = self.config, [other.curve for other in others]
        for step in rungs(options.first_rung, options.reduction, own, options.counter):
            found = rung_reason(
                self, own, curves, counter=options.counter, step=step, reduction=options.reduction
            )
            if found is not None:
                return f"asha: {found}"
        return None


def rungs(first: int, reduction: int, own: MetricCurve, counter: str) -> Iterator[int]:
    """Yield each rung that the last value of a run has just passed."""
    step = first
    while step <= own.points[-1].step(counter):
        if has_passed(own, counter, step):
            yield step
        step *= reduction
