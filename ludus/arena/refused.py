"""What trainers of the arena have no use for, refused in a sentence rather than ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from ludus.config.base import Settings
from ludus.core.errors import ConfigError


def unused_settings(settings: Settings) -> Iterator[str]:
    """Yield each setting that would do nothing."""
    if settings.workers:
        yield (
            f"'settings.workers' is {settings.workers}, but data and episodes are tensors of this process;"
            " set it to 0"
        )
    if settings.checkpoint.every_epochs:
        yield (
            f"'settings.checkpoint.every_epochs' is {settings.checkpoint.every_epochs}, but a run counted in"
            " iterations counts no epochs; set it to 0, and use every_opt_steps"
        )


class OwnParts:
    """A trainer whose agents and whose evaluation are those of its scenario instance."""

    config: Any

    def set_model(self, model: object) -> NoReturn:
        """Refuse: the model would never be trained."""
        raise ConfigError(
            f"a run of kind '{self.config.kind}' trains the agents of its scenario instance, so"
            f" {type(model).__name__} would never be; register it as a body or an agent, or give the trainer"
            " a ScenarioInstance"
        )

    def set_evaluator(self, evaluator: object) -> NoReturn:
        """Refuse: the evaluator would never be asked."""
        raise ConfigError(
            f"a run of kind '{self.config.kind}' is judged as its section 'evaluation' says, so"
            f" {type(evaluator).__name__} would never be asked; change that section, or evaluate in a hook:"
            " after_evaluate"
        )
