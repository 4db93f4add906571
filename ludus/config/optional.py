"""Libraries that are installed only by those who use them: imported when first used."""

from __future__ import annotations

import importlib
from typing import Any

from ludus.core.errors import ConfigError


def optional(library: str, *, key: str, extra: str) -> Any:
    """Return an imported library; raise ConfigError, which says what to install, where it is missing."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        if error.name != library.partition(".")[0]:
            raise ConfigError(f"{key} needs {library}, which cannot be imported: {error}") from None
        raise ConfigError(
            f"{key} needs {library}; install it with: pip install 'ludus[{extra}]'"
        ) from None
