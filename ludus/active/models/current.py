"""A part that delegates to the current object: a model may be replaced during a run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ludus.core import Stateful


class Current:
    """Saves and loads the part that a function currently returns."""

    def __init__(self, get: Callable[[], Stateful]) -> None:
        self._get = get

    def __getattr__(self, name: str) -> Any:
        """Return what the current object has besides its state: reasons, notes."""
        return getattr(self._get(), name)

    def state_dict(self) -> Mapping[str, Any]:
        return self._get().state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._get().load_state_dict(state)
