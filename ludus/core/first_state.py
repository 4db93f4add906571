"""The states in which a script gave its models: every new run of the trainer begins from them."""

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
    """A digest of what the last run made of it."""


class FirstState:
    """Remembers the state of each model when the first run began with it.

    A trainer trains the very models that it was given. So they are put back as they were before another run:
    what a run begins with is decided by its config and by what the script gave, not by the runs before it.
    `copied` copies a state, and `digest` returns what changes when a state does; None: nobody asks.
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
        """Make the models what they were: first of all, for parts copy them."""
        self._is_undone = False
        for known in self._known:
            if known.left is not None:
                self._is_undone |= self._digest(known.model.state_dict()) != known.left
            try:
                known.model.load_state_dict(self._copied(known.first))
            except Exception as error:
                # Whatever a model says of a state that was its own: it is no longer the same model.
                raise ConfigError(
                    f"the {type(known.model).__name__} that was given has other layers than when a run first"
                    " began with it, so a new run cannot begin as that did; give it again, with set_model,"
                    " before fit"
                ) from error

    def remember(self, models: Iterable[object]) -> None:
        """Keep the states of models, once all layers have their shapes, unless they are known."""
        for model in models:
            if isinstance(model, Stateful) and not any(
                model is known.model for known in self._known
            ):
                self._known.append(_Known(model, self._copied(model.state_dict())))

    def leave(self) -> None:
        """Note what a run that has ended made of the models."""
        for known in self._known:
            known.left = self._digest(known.model.state_dict())

    def tell(self, tell: Tell, *, is_new: bool) -> None:
        """Say so where the script changed a model since the last run, which a new run does not begin from."""
        if is_new and self._is_undone:
            tell(
                "the model was changed after the last fit, and a new run begins from what it was when it was"
                " first given; to begin from the changed one, call set_model with it before fit",
                event="model_put_back",
            )

    def forget(self) -> None:
        """Take the models as they are then for the first state of the next run."""
        self._known = []
