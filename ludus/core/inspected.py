"""What of a trainer is looked at: whom it asks, what its data are like, and whether it is built at all."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ludus.core.errors import LudusError

_NEED_PARTS = ("plan", "parts", "observers")


class Inspected:
    """A base of every trainer; a family says more where it has more."""

    _is_prepared = False
    asked_once: ClassVar[tuple[str, ...]] = ()
    """Roles of those whose answers are kept in a journal: what they keep cannot be saved with the parts."""
    model: object
    given_classes: dict[str, str]

    def given_models(self) -> Sequence[object]:
        """Return what a script gave to be trained: each new run begins from what they were at first."""
        return [self.model] if "model" in self.given_classes else []

    def __init_subclass__(cls, **options: Any) -> None:
        """Let a trainer that is asked for its plan or its parts before it is built say so in a sentence."""
        super().__init_subclass__(**options)
        own = vars(cls)
        for name in _NEED_PARTS:
            if name in own:
                setattr(cls, name, _once_built(own[name]))
        if "prepare" in own:
            setattr(cls, "prepare", _noted(own["prepare"]))  # noqa: B010 - seen by type checkers

    def consulted(self) -> Mapping[str, object]:
        """Return what the run asks and is in no part, by role: a game, analysers, an oracle.

        Those of the user's own with `state_dict` and `load_state_dict` become parts; others are watched.
        """
        return {}

    def data_facts(self) -> Mapping[str, str]:
        """Return, by role, a digest of the data: a resume with other data is refused."""
        return {}


def _noted(prepare: Callable[..., None]) -> Callable[..., None]:
    """Return `prepare`, which is remembered once it was called."""

    @functools.wraps(prepare)
    def noted(self: Inspected, **options: Any) -> None:
        prepare(self, **options)
        self._is_prepared = True

    return noted


def _once_built(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a method that needs what `prepare` builds."""

    @functools.wraps(method)
    def asked(self: Inspected) -> Any:
        try:
            return method(self)
        except AttributeError as error:
            if self._is_prepared:
                raise
            kind = type(self).__name__
            raise LudusError(
                f"{kind}.{method.__name__}() needs what fit() builds when it begins; ask in a hook or after"
                f" fit(), or call prepare(max_steps=None) first (`ludus plan CONFIG` prints a plan)"
            ) from error

    return asked
