"""The state in which a script gave a model: every new run of the trainer begins from it."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor

from ludus.core.run import Stateful


class GivenState:
    """Remembers the state of a model when the first run began with it, in main memory.

    A trainer trains the very model that it was given. So it is put back as it was before another run: what a
    run begins with is decided by its config and by what the script gave, not by the runs before it.
    """

    def __init__(self) -> None:
        self._model: Stateful | None = None
        self._state: Any = None

    def put_back(self) -> None:
        """Make the model what it was, if a run began with it before: first of all, for parts copy it."""
        if self._model is not None:
            self._model.load_state_dict(_copied(self._state))

    def remember(self, model: object) -> None:
        """Keep the state of this model, once all its layers have their shapes, unless it is known."""
        if self._model is None and isinstance(model, Stateful):
            self._model, self._state = model, _copied(model.state_dict())

    def forget(self) -> None:
        """Take the model as it is then for the first state of the next run."""
        self._model = None


def _copied(value: object) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_copied(item) for item in value])
    return copy.deepcopy(value)
