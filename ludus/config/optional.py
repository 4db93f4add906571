"""Optional dependencies, imported when first used."""

from __future__ import annotations

import importlib
from typing import Any

from ludus.core.errors import ConfigError

_PACKAGES = {"PIL": "Pillow", "sklearn": "scikit-learn"}
"""Import names that differ from the package names."""


def optional(library: str, *, key: str, extra: str) -> Any:
    """Return an imported library; raise ConfigError, saying what to install, if it is missing."""
    try:
        return importlib.import_module(library)
    except ImportError as error:
        top = library.partition(".")[0]
        package = _PACKAGES.get(top, top)
        if error.name not in (top, library):
            raise ConfigError(f"{key} needs {package}, which cannot be imported: {error}") from None
        raise ConfigError(
            f"{key} needs {package}; install it with: pip install 'ludus[{extra}]'"
        ) from None
