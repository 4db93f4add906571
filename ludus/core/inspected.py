"""Introspection of a trainer: the objects it consults, digests of its data, and whether it is prepared."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from ludus.core.errors import LudusError

_NEED_PARTS = ("plan", "parts", "observers")


class Inspected:
    """Base of every trainer; families override what differs."""

    _is_prepared = False
    asked_once: ClassVar[tuple[str, ...]] = ()
    """Roles whose answers are kept in a journal: their own state cannot be saved with the parts."""
    model: object
    given_classes: dict[str, str]

    def given_models(self) -> Sequence[object]:
        """Return the models a script gave to be trained: each new run starts from their initial states."""
        return [self.model] if "model" in self.given_classes else []

    def __init_subclass__(cls, **options: Any) -> None:
        """Wrap the methods that need `prepare`, so that calling them too early raises a clear LudusError."""
        super().__init_subclass__(**options)
        own = vars(cls)
        for name in _NEED_PARTS:
            if name in own:
                setattr(cls, name, _once_built(own[name]))
        if "prepare" in own:
            setattr(cls, "prepare", _noted(own["prepare"]))  # noqa: B010 - seen by type checkers

    def consulted(self) -> Mapping[str, object]:
        """Return the objects the run consults that are in no part, by role: a game, analysers, an oracle.

        The user's own objects with `state_dict` and `load_state_dict` become parts; others are watched.
        """
        return {}

    def data_facts(self) -> Mapping[str, str]:
        """Return a digest of the data by role; a resume with other data is refused."""
        return {}


def _noted(prepare: Callable[..., None]) -> Callable[..., None]:
    """Wrap `prepare` to record that it was called."""

    @functools.wraps(prepare)
    def noted(self: Inspected, **options: Any) -> None:
        prepare(self, **options)
        self._is_prepared = True

    return noted


def _once_built(method: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Wrap a method that needs what `prepare` builds, so that calling it too early is a LudusError."""

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
