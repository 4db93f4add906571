"""Exactness of a run in a directory: lasting reasons against it, and what has proved it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ludus.core.exactness import Exact
from ludus.core.trainer import Trainer
from ludus.store import proofs

DIFFERS = "resume_differs"
"""Event: a resumed run differed from what it had logged before the kill."""


class RunExactness:
    """Exactness of a run, with the reasons if it is `no`."""

    def __init__(self, trainer: Trainer, *, is_transplant: bool) -> None:
        self._trainer = trainer
        self.noted = ["it began with the state of another run"] if is_transplant else []
        """Reasons that stay, whatever the trainer reports later."""
        self.of = proofs.ProofSubject(None, None)
        """Identity of this run: a proof holds for nothing else."""
        self._by: str | None = None

    def take_up(self, manifest: Mapping[str, Any], more: Iterable[str]) -> None:
        """Restore the reasons and the proof from a checkpoint's manifest, and add further reasons."""
        self.noted = list(dict.fromkeys([*manifest["inexact_because"], *more]))
        proof = manifest["proof"]
        self._by = proof["by"] if proof is not None and self.of.is_that_of(proof) else None

    def differs(self, reason: str) -> None:
        """Record that a resumed run differed from before."""
        if reason not in self.noted:
            self.noted.append(reason)

    def agrees(self) -> None:
        """Record that a resumed run repeated all earlier lines and they agreed."""
        self._by = "overlap"

    def look_up(self) -> None:
        """Check whether `ludus verify` has proved this run."""
        if self._by is None and proofs.is_proved(self.of.key):
            self._by = "verify"

    def reasons(self) -> list[str]:
        """Return all current reasons against exactness."""
        return list(dict.fromkeys([*self.noted, *self._trainer.all_reasons()]))

    def entry(self) -> dict[str, Any]:
        """Return the exactness and the reasons, as stored in files."""
        reasons = self.reasons()
        return {"exact": str(self._word(reasons)), "inexact_because": reasons}

    def checkpoint_entry(self) -> dict[str, Any]:
        """Return the entry of a checkpoint: the same, and the proof if there is one."""
        entry = self.entry()
        if entry["exact"] != Exact.PROVED:
            return entry
        return {**entry, "proof": {"by": self._by, **asdict(self.of)}}

    def _word(self, reasons: list[str]) -> Exact:
        if reasons:
            return Exact.NO
        return Exact.PROVED if self._by is not None else Exact.EXPECTED

    def fact(self) -> str:
        """Return the exactness, with the reasons if it is `no`, for the display."""
        reasons = self.reasons()
        return "; ".join([f"{Exact.NO}: {reasons[0]}", *reasons[1:]]) if reasons else self._word([])
