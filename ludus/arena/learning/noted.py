"""Notes of a trainer for the log: what fit changed, how updates are executed, and what no
checkpoint holds."""

from __future__ import annotations

from ludus.core import Run
from ludus.nn.engines.unsaved import PlainState, unsaved
from ludus.session.begun import CHANGED


class Noted:
    """Logs the notes that a trainer collects in `prepare`."""

    run: Run
    _notes: list[str]
    _engine_notes: list[str]
    _plain_state: PlainState

    def open(self) -> None:
        """Log what fit changed, and how the updates are executed."""
        for note in self._notes:
            self.run.tell(note, event=CHANGED)
        for note in self._engine_notes:
            self.run.tell(note, event="engine")

    def inexact_because(self) -> list[str]:
        """Return a script's network if it changes state without saving it."""
        return unsaved(self._plain_state) if hasattr(self, "_plain_state") else []
