"""Runs that are counted in rounds: the base of their configs, and the stages after a round."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, Self

from pydantic import Field

from ludus.config.base import TrainerConfig
from ludus.config.evaluation import EvaluationConfig
from ludus.core import Stage
from ludus.core.errors import ConfigError
from ludus.core.intervals import Work, follow_ups, never_reached
from ludus.session.begun import in_whole

Share = Annotated[float, Field(ge=0, le=1)]
PositiveShare = Annotated[float, Field(gt=0, le=1)]

_INTERVALS = ("log_every_rounds", "keep_every_rounds")


class RoundsConfig(TrainerConfig):
    """The config of a run that is counted in rounds; a subclass declares the keys."""

    if TYPE_CHECKING:
        max_rounds: int
        log_every_rounds: int
        keep_every_rounds: int
        evaluate_every_rounds: int

    @property
    def opts_a_round(self) -> int:
        """The number of optimization steps per round."""
        raise NotImplementedError

    def unreached(self) -> dict[str, Any]:
        """Return each key that a run of this length never reaches, with the value that means never."""
        return {key: 0 for key in _INTERVALS if getattr(self, key) > self.max_rounds}

    def with_length(self, max_steps: int) -> tuple[Self, list[str]]:
        """Return the config of a run of at least this many optimization steps, in whole rounds, and a
        sentence for each other key that had to change.
        """
        return in_whole(self, max_steps, unit="round", opts_each=self.opts_a_round)

    def problems_of_rounds(self, evaluation: EvaluationConfig) -> Iterator[str]:
        """Yield each key of evaluations, intervals and settings that has no effect in such a run."""
        yield from evaluation.unused("evaluate_every_rounds", self.evaluate_every_rounds)
        for key in _INTERVALS:
            if (interval := getattr(self, key)) > self.max_rounds:
                yield never_reached(key, interval, "'max_rounds'", self.max_rounds)
        settings = self.settings
        if settings.workers:
            yield (
                f"'settings.workers' is {settings.workers}, but the games are tensors of this process;"
                " set it to 0"
            )
        if settings.checkpoint.every_epochs:
            yield (
                f"'settings.checkpoint.every_epochs' is {settings.checkpoint.every_epochs}, but"
                " a run counted in rounds has no epochs; set it to 0, and use every_opt_steps"
            )


def after_a_round(
    config: RoundsConfig, *, evaluate: Work, record: Work, save: Work
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


def refuse_evaluator(kind: str, evaluator: object) -> NoReturn:
    """Raise ConfigError: such a run is evaluated by the games of its config alone."""
    raise ConfigError(
        f"a run of kind '{kind}' is judged by the games of its section 'evaluation', so"
        f" {type(evaluator).__name__} would never be asked; change that section, or evaluate in a hook:"
        " after_evaluate"
    )
