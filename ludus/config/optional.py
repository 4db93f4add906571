"""Optional dependencies, imported when first used."""

from __future__ import annotations

import importlib
import importlib.util
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
        if error.name not in (top, library):
            package = _PACKAGES.get(top, top)
            raise ConfigError(f"{key} needs {package}, which cannot be imported: {error}") from None
        raise _missing(top, key=key, extra=extra) from None


def check_installed(library: str, *, key: str, extra: str) -> None:
    """Raise ConfigError, saying what to install, if a library is missing; nothing is imported."""
    if importlib.util.find_spec(library) is None:
        raise _missing(library, key=key, extra=extra)


def _missing(top: str, *, key: str, extra: str) -> ConfigError:
    package = _PACKAGES.get(top, top)
    return ConfigError(f"{key} needs {package}; install it with: pip install 'ludus[{extra}]'")
