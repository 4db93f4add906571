"""Refuse the evaluator of a script for games on the device, which do not call one."""

from __future__ import annotations

from typing import NoReturn

from ludus.core.errors import ConfigError


def refuse_evaluator(kind: str, evaluator: object) -> NoReturn:
    """Raise ConfigError: such a run is evaluated by the games of its config alone."""
    raise ConfigError(
        f"a run of kind '{kind}' is judged by the games of its section 'evaluation', so"
        f" {type(evaluator).__name__} would never be asked; change that section, or evaluate in a hook:"
        " after_evaluate"
    )
