"""What a trainer has to say of its run before the first step: on the display, and in events.jsonl."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ludus.store.directory import tell_event


def tell_notes(trainer: Any, notes: Sequence[str], *, event: str = "changed_by_fit") -> None:
    """Show each sentence to whoever is watching, and write it to the run's journal."""
    for note in notes:
        if trainer.files is not None:
            tell_event(trainer.files, event, reason=note)
        if trainer.display is not None:
            trainer.display.message(note)
