"""One run of a sweep as the sweep sees it: its directory, its curve, and how it ended."""

from __future__ import annotations

from ludus.judge.directions import Direction
from ludus.store import checkpoint, directory
from ludus.store.checkpoint_files import peek
from ludus.store.groups import member_name
from ludus.store.local import LocalStorage
from ludus.store.storage import Storage
from ludus.sweep.curve import MetricCurve, read_curve
from ludus.sweep.engine import RunEnd
from ludus.sweep.run import FATAL, MAX_REASON
from ludus.sweep.trials import RUNS, WHOLE, RunOutcome

_FATAL = tuple(f"{error.__name__}: " for error in FATAL)


class SweptRun:
    """A run, which another process may execute."""

    def __init__(
        self,
        sweep: LocalStorage,
        number: int,
        seed: int,
        metric: str,
        *,
        folder: str = RUNS,
        name: str | None = None,
    ) -> None:
        """Its directory is named by the trial and the seed, if it has no other name."""
        self.seed, self._metric = seed, metric
        self.name = name or member_name(f"{number:04d}", seed)
        self._place = f"{folder}/{self.name}"
        self.storage = LocalStorage(sweep.root / self._place)
        self.curve = MetricCurve()
        self.is_whole = False

    def recorded_end(self) -> RunEnd | None:
        """Return how an earlier process ended it, and read what it had saved; None if it is to go on."""
        if not self.storage.exists("run.json"):
            return None
        ending = directory.last_ending(self.storage)
        if ending is not None and ending["event"] != "interrupted":
            reason = ending.get("reason")
            if not (ending["event"] == "failed" and str(reason).startswith(_FATAL)):
                return RunEnd(
                    ending["event"], reason and reason[:MAX_REASON], ending.get("counters", {})
                )
        self.curve = saved_curve(self.storage, self._metric)
        return None

    def end_pruned(self, reason: str) -> RunEnd:
        """Record as pruned a run that was killed after its last checkpoint, which it was to end at."""
        saved = peek(self.storage)
        kept = ("best", "more_bests", "runners_up", "exact", "inexact_because")
        entries = {name: saved[name] for name in kept if name in saved}
        with self.storage.lock():
            directory.tell_event(
                self.storage, "pruned", reason=reason, counters=saved.get("counters", {}), **entries
            )
            self.storage.close()
        return RunEnd("pruned", reason, saved.get("counters", {}))

    def outcome(self, end: RunEnd, *, take: str, mode: Direction) -> RunOutcome:
        """Return how it ended, with the value that its directory holds."""
        curve = read_curve(self.storage, self._metric)
        assert end.status != "interrupted", "it goes on"
        return RunOutcome(
            self.seed,
            end.status,
            end.reason,
            curve.value_of(take, mode),
            dict(end.counters) or peek(self.storage).get("counters", {}),
            len(curve.points),
            self._place,
        )

    def read(self, outcome: RunOutcome) -> None:
        """Read its curve as it was when it ended; a pruned run may have been resumed since."""
        self.curve = read_curve(self.storage, self._metric).up_to(outcome.num_points)
        self.is_whole = outcome.status in WHOLE


def saved_curve(storage: Storage, metric: str) -> MetricCurve:
    """Return the values up to the checkpoint from which a run is resumed."""
    saved = checkpoint.last_manifest(storage)
    offsets = {} if saved is None else saved.manifest["offsets"]
    return read_curve(storage, metric, length=int(offsets.get("metrics.jsonl", 0)))
