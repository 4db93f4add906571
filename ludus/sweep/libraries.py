"""Libraries of sweeps, imported when first used."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ludus.config.optional import optional

_EXTRA = "sweep"


@functools.cache
def load_optuna() -> Any:
    """Return Optuna, quiet; raise ConfigError, saying what to install, if it is missing."""
    optuna = optional("optuna", key="a sweep", extra=_EXTRA)
    # What it tells about trials, the sweep tells itself.
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def check_library(library: str, *, key: str) -> None:
    """Raise ConfigError, saying what to install, if a library that Optuna uses is missing."""
    optional(library, key=key, extra=_EXTRA)


@contextmanager
def quiet() -> Iterator[None]:
    """Drop Optuna's warnings about what is experimental, which are no news to a user of ludus."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
