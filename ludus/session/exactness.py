"""What a run knows of its own exactness: what speaks against it for good, and what has proved it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any

from ludus.core.exactness import Exact
from ludus.core.trainer import Trainer
from ludus.store import proofs

DIFFERS = "resume_differs"
"""The event that a resumed run was seen to go on otherwise than before the kill."""


class RunExactness:
    """One of three words for a run, with the reasons where it is `no`."""

    def __init__(self, trainer: Trainer, *, is_transplant: bool) -> None:
        self._trainer = trainer
        self.noted = ["it began with the state of another run"] if is_transplant else []
        """Reasons that stay, whatever the trainer says later."""
        self.of = proofs.Subject(None, None)
        """What this run is: a proof holds for nothing else."""
        self._by: str | None = None

    def take_up(self, manifest: Mapping[str, Any], more: Iterable[str]) -> None:
        """Go on from what a checkpoint says, and from what else is known by now."""
        self.noted = list(dict.fromkeys([*manifest["inexact_because"], *more]))
        proof = manifest["proof"]
        self._by = proof["by"] if proof is not None and self.of.is_that_of(proof) else None

    def differs(self, reason: str) -> None:
        """Note that a resume was seen to go on otherwise than before."""
        if reason not in self.noted:
            self.noted.append(reason)

    def agrees(self) -> None:
        """Note that a resume passed what had been seen before, and agreed."""
        self._by = "overlap"

    def look_up(self) -> None:
        """See whether `ludus verify` has proved this very run."""
        if self._by is None and proofs.is_proved(self.of.key):
            self._by = "verify"

    def reasons(self) -> list[str]:
        """Return all that speaks against it now."""
        return list(dict.fromkeys([*self.noted, *self._trainer.all_reasons()]))

    def told(self) -> dict[str, Any]:
        """Return the word and the reasons, as files have them."""
        reasons = self.reasons()
        return {"exact": str(self._word(reasons)), "inexact_because": reasons}

    def told_to_resume(self) -> dict[str, Any]:
        """Return what a checkpoint says: the same, and by what and of what it was proved, if it is."""
        told = self.told()
        if told["exact"] != Exact.PROVED:
            return told
        return {**told, "proof": {"by": self._by, **asdict(self.of)}}

    def _word(self, reasons: list[str]) -> Exact:
        if reasons:
            return Exact.NO
        return Exact.PROVED if self._by is not None else Exact.EXPECTED

    def fact(self) -> str:
        """Return the word, with the reasons behind it, for the screen."""
        reasons = self.reasons()
        return "; ".join([f"{Exact.NO}: {reasons[0]}", *reasons[1:]]) if reasons else self._word([])
