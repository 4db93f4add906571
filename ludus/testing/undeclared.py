"""Find state that would be lost: attributes that change between boundaries and belong to no part."""

from __future__ import annotations

from ludus.core.run import Run
from ludus.core.trainer import Trainer
from ludus.core.unsaved import UnsavedStates

MAX_BOUNDARIES = 60


class UndeclaredState:
    """An observer that inspects a trainer and everything given to it at every boundary."""

    def __init__(self, trainer: Trainer) -> None:
        self._trainer = trainer
        self._states = UnsavedStates()
        self._changed: dict[str, list[str]] = {}
        self._num_seen = 0

    def __call__(self, run: Run) -> None:
        """Compare everything with its state at the first boundary."""
        self._num_seen += 1
        if self._num_seen == 1:
            self._states.watch(self._trainer)
        elif self._num_seen <= MAX_BOUNDARIES:
            self._changed = self._states.changed()

    def found(self) -> list[str]:
        """Return the changed attributes that are in no part; those of companions as a sentence.

        This includes what the run itself has detected since its beginning.
        """
        own = self._trainer.inexact_because()
        said = [reason for reason in self._trainer.all_reasons() if reason not in own]
        return [*self._changed.get("the trainer", []), *said]
