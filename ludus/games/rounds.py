"""Shared code of runs that are counted in rounds: their length, and the stages after a round."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Protocol, Self, TypeVar

from pydantic import Field

from ludus.core import Stage, intervals
from ludus.core.intervals import Work, follow_ups
from ludus.session.begun import in_whole

Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]

_INTERVALS = ("log_every_rounds", "keep_every_rounds")


class InRounds(Protocol):
    """A config of a run that is counted in rounds."""

    @property
    def max_rounds(self) -> int: ...
    @property
    def log_every_rounds(self) -> int: ...
    @property
    def keep_every_rounds(self) -> int: ...
    @property
    def evaluate_every_rounds(self) -> int: ...
    @property
    def opts_a_round(self) -> int:
        """The number of optimization steps per round."""

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never reaches, with the value that means never."""

    def replace(self, **changes: Any) -> Self: ...
    def model_copy(self, *, update: Mapping[str, Any]) -> Self: ...


C = TypeVar("C", bound=InRounds)


def intervals_unreached(config: InRounds) -> dict[str, Any]:
    """Return each interval that is longer than the run, with the value that means never."""
    return {key: 0 for key in _INTERVALS if getattr(config, key) > config.max_rounds}


def never_reached(config: InRounds) -> Iterator[str]:
    """Yield a sentence for each interval that is longer than the run."""
    for key in intervals_unreached(config):
        yield intervals.never_reached(key, getattr(config, key), "'max_rounds'", config.max_rounds)


def with_length(config: C, max_steps: int) -> tuple[C, list[str]]:
    """Return the config of a run of at least this many optimization steps, in whole rounds, and a sentence
    for each other key that had to change.
    """
    return in_whole(config, max_steps, unit="round", opts_each=config.opts_a_round)


def after_a_round(
    config: InRounds, *, evaluate: Work, record: Work, save: Work
) -> tuple[Stage, ...]:
    """Return the stages that follow a round: evaluate, record, save, each at its interval of the config.

    A round counts as soon as its last update is made, so that the stages after it log under its number.
    """

    return follow_ups(
        "round",
        config.max_rounds,
        evaluate_every=config.evaluate_every_rounds,
        log_every=config.log_every_rounds,
        keep_every=config.keep_every_rounds,
        evaluate=evaluate,
        record=record,
        keep=save,
    )
