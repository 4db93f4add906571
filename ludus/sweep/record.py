"""Record of a sweep: a journal of what was asked, how each run ended, and what the sampler was told.

journals/sweep.jsonl

    begin            the versions that a deterministic sweep depends on
    ask/0007         the point of a trial, durable before its first run is launched
    run/0007/3       how its run with seed 3 ended
    tell/0007        how the trial ended, when the sampler was told
    time             how long the sweep has run; again whenever a run begins or ends, and when it pauses
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from ludus.core.errors import StorageError
from ludus.judge.confidence import MeanInterval
from ludus.store.journal import Journal
from ludus.store.storage import Storage
from ludus.sweep.trials import RunOutcome, SweepTrial, TrialState

NAME = "sweep"


class SweepRecord:
    """Writes and reads the journal; one process at a time, which holds the lock of the sweep."""

    def __init__(self, storage: Storage) -> None:
        self._journal = Journal(storage, NAME)
        self._place = f"{storage.place}/journals/{NAME}.jsonl"

    @property
    def beginning(self) -> dict[str, Any] | None:
        """The entry of the beginning; None for a new sweep."""
        return self._journal.get("begin")

    def begin(self, about: Mapping[str, Any]) -> None:
        self._journal.put("begin", about)

    def asked(self, trial: SweepTrial) -> None:
        """Write the point of a trial."""
        self._journal.put(
            f"ask/{trial.number:04d}", {"point": dict(trial.point), "batch": trial.batch}
        )

    def ended(self, trial: SweepTrial, outcome: RunOutcome) -> None:
        """Write how a run ended."""
        self._journal.put(f"run/{trial.number:04d}/{outcome.seed}", outcome.as_json())

    def ran(self, seconds: float) -> None:
        """Write how long the sweep has run."""
        self._journal.put("time", {"seconds": seconds})

    def told(self, trial: SweepTrial, seconds: float) -> None:
        """Write how a trial ended, and how long the sweep has run."""
        score = None if trial.score is None else vars(trial.score)
        record = {"state": trial.state, "reason": trial.reason, "score": score, "seconds": seconds}
        self._journal.put(f"tell/{trial.number:04d}", record)

    def order(self) -> list[tuple[str, int]]:
        """Return every ask and tell, as ("ask", 7), in their order."""
        words = (key.split("/") for key in self._keys())
        return [(parts[0], int(parts[1])) for parts in words if parts[0] in ("ask", "tell")]

    def seconds(self) -> float:
        """Return how long the sweep has run."""
        keys = [key for key in self._keys() if key == "time" or key.startswith("tell/")]
        return max((float(self._get(key)["seconds"]) for key in keys), default=0.0)

    def trials(self) -> dict[int, SweepTrial]:
        """Return every trial that was asked, by number."""
        found: dict[int, SweepTrial] = {}
        try:
            for key in self._keys():
                what, _, rest = key.partition("/")
                if what == "ask":
                    own = self._get(key)
                    found[int(rest)] = SweepTrial(int(rest), own["point"], int(own["batch"]))
                elif what == "run":
                    number, seed = map(int, rest.split("/"))
                    found[number].runs[seed] = RunOutcome(**self._get(key))
                elif what == "tell":
                    _tell(found[int(rest)], self._get(key))
        except (KeyError, TypeError, ValueError) as error:
            raise self.damaged(error) from None
        return dict(sorted(found.items()))

    def damaged(self, error: Exception) -> StorageError:
        """Return an error for what the journal holds and cannot be of this sweep."""
        return StorageError(
            f"{self._place} is damaged ({error!r}); restore it from a backup, or begin the sweep under"
            " another name"
        )

    def _keys(self) -> list[str]:
        return self._journal.keys()

    def _get(self, key: str) -> dict[str, Any]:
        return self._journal.get(key) or {}


def _tell(trial: SweepTrial, own: Mapping[str, Any]) -> None:
    if own["state"] not in get_args(TrialState):
        raise ValueError(f"{own['state']!r} is no state of a trial")
    trial.state, trial.reason, trial.is_told = own["state"], own["reason"], True
    trial.score = None if own["score"] is None else MeanInterval(**own["score"])
