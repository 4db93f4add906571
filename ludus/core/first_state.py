"""The states in which a script gave its models: every new run of the trainer begins from them."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any

from torch import Tensor

from ludus.core.run import Stateful


class FirstState:
    """Remembers the state of each model when the first run began with it, in main memory.

    A trainer trains the very models that it was given. So they are put back as they were before another run:
    what a run begins with is decided by its config and by what the script gave, not by the runs before it.
    """

    def __init__(self) -> None:
        self._kept: list[tuple[Stateful, Any]] = []

    def put_back(self) -> None:
        """Make the models what they were: first of all, for parts copy them."""
        for model, state in self._kept:
            model.load_state_dict(_copied(state))

    def remember(self, models: Iterable[object]) -> None:
        """Keep the states of models, once all layers have their shapes, unless they are known."""
        for model in models:
            if isinstance(model, Stateful) and not any(model is known for known, _ in self._kept):
                self._kept.append((model, _copied(model.state_dict())))

    def forget(self) -> None:
        """Take the models as they are then for the first state of the next run."""
        self._kept = []


def _copied(value: object) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to("cpu", copy=True)
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return type(value)([_copied(item) for item in value])
    return copy.deepcopy(value)
