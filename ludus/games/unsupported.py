"""Settings that trainers of device games do not support; they raise an error rather than being ignored."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn

from ludus.config.base import Settings
from ludus.core.errors import ConfigError


def unused_settings(settings: Settings) -> Iterator[str]:
    """Yield each setting that would have no effect."""
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


class OwnEvaluation:
    """A trainer that is evaluated only by the games of its config."""

    config: Any

    def set_evaluator(self, evaluator: object) -> NoReturn:
        """Raise an error: the evaluator would never be called."""
        raise ConfigError(
            f"a run of kind '{self.config.kind}' is judged by the games of its section 'evaluation', so"
            f" {type(evaluator).__name__} would never be asked; change that section, or evaluate in a hook:"
            " after_evaluate"
        )
