"""Initial states of the models that a script gave: every new run of the trainer starts from them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from ludus.core.errors import ConfigError
from ludus.core.run import Stateful
from ludus.core.services import Tell


@dataclass
class _Known:
    model: Stateful
    first: Any
    left: object = None
    """Digest of the model's state after the last run."""


class FirstState:
    """Keeps the initial state of each model and restores it before another run.

    A trainer trains the given models in place. Restoring them means that a run starts from its config and
    what the script gave, not from the result of earlier runs.
    `copied` copies a state; `digest` changes whenever a state does, and None means that nothing is compared.
    """

    def __init__(
        self,
        copied: Callable[[object], Any] = copy.deepcopy,
        digest: Callable[[object], object] = lambda state: None,
    ) -> None:
        self._copied, self._digest = copied, digest
        self._known: list[_Known] = []
        self._is_undone = False

    def put_back(self) -> None:
        """Restore the initial states; called before everything else, because parts copy the models."""
        self._is_undone = False
        for known in self._known:
            if known.left is not None:
                self._is_undone |= self._digest(known.model.state_dict()) != known.left
            try:
                known.model.load_state_dict(self._copied(known.first))
            except Exception as error:
                # An error in loading its own earlier state means that its layers have changed.
                raise ConfigError(
                    f"the {type(known.model).__name__} that was given has other layers than when a run first"
                    " began with it, so a new run cannot begin as that did; give it again, with set_model,"
                    " before fit"
                ) from error

    def remember(self, models: Iterable[object]) -> None:
        """Save the state of each new model; called once all layers have their shapes."""
        for model in models:
            if isinstance(model, Stateful) and not any(
                model is known.model for known in self._known
            ):
                self._known.append(_Known(model, self._copied(model.state_dict())))

    def leave(self) -> None:
        """Record a digest of each model at the end of a run."""
        for known in self._known:
            known.left = self._digest(known.model.state_dict())

    def tell(self, tell: Tell, *, is_new: bool) -> None:
        """Warn if the script changed a model since the last run, because a new run discards that change."""
        if is_new and self._is_undone:
            tell(
                "the model was changed after the last fit, and a new run begins from what it was when it was"
                " first given; to begin from the changed one, call set_model with it before fit",
                event="model_put_back",
            )

    def forget(self) -> None:
        """Let the next run take the models' current states as initial states."""
        self._known = []
