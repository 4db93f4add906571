"""Update schedules: the iterations in which an agent learns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ludus.config.base import Count, Positive, StrictConfig


class ConstantSchedule(StrictConfig):
    """Learns in every iteration, or in none."""

    kind: Literal["constant"]
    """The same in every iteration."""
    learns: bool
    """Whether it learns; false freezes it for the whole run."""

    def is_learning(self, iteration: int) -> bool:
        """Return whether the agent learns in this iteration, counted from 0."""
        return self.learns


class ContiguousPeriodicSchedule(StrictConfig):
    """Learns in one interval of every period."""

    kind: Literal["contiguous_periodic"]
    """One interval of every period."""
    period: Positive
    """The number of iterations in a period."""
    start: Count
    """The first iteration of a period in which it learns, counted from 0."""
    stop: Positive
    """The first iteration after that in which it does not learn."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        if not self.start < self.stop <= self.period:
            yield (
                f"'start' is {self.start}, 'stop' {self.stop} and 'period' {self.period}; a stretch needs"
                " start < stop <= period"
            )

    def is_learning(self, iteration: int) -> bool:
        """Return whether the agent learns in this iteration, counted from 0."""
        return self.start <= iteration % self.period < self.stop


class AlternatingPeriodicSchedule(StrictConfig):
    """Learns in the first iterations of every period, or in the rest of it."""

    kind: Literal["alternating_periodic"]
    """The first interval of every period, or the rest."""
    period: Positive
    """The number of iterations in a period."""
    num_first: Positive
    """The number of iterations in its first interval."""
    learns_first: bool
    """Learn in the first interval; false: in the rest."""

    def problems(self) -> Iterator[str]:
        """Yield each key that the others make impossible."""
        if self.num_first >= self.period:
            yield (
                f"'num_first' is {self.num_first} of a 'period' of {self.period}, which leaves nothing to"
                " alternate with; lower it"
            )

    def is_learning(self, iteration: int) -> bool:
        """Return whether the agent learns in this iteration, counted from 0."""
        return (iteration % self.period < self.num_first) == self.learns_first


UpdateScheduleSection = Annotated[
    ConstantSchedule | ContiguousPeriodicSchedule | AlternatingPeriodicSchedule,
    Field(discriminator="kind"),
]
