"""Compare a resumed run, line by line, with what it had logged before it was killed."""

from __future__ import annotations

import functools
import json
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any

from ludus.core.errors import StorageError
from ludus.core.run import Run
from ludus.session.digests import Digests
from ludus.session.exactness import DIFFERS, RunExactness
from ludus.session.logger import Logger
from ludus.session.loggers.jsonl import line_of
from ludus.session.record import Record
from ludus.store import overlap
from ludus.store.overlap import METRICS, WEIGHTS
from ludus.store.storage import Storage

_LOGS = (METRICS, WEIGHTS)
_FINEST = ("opt_steps", "env_steps")


class Witness:
    """Holds the log lines that a killed run wrote after its checkpoint; each must be written again.

    The first difference is reported and recorded against the run, and comparing stops. If every line
    agrees up to the last one, the run is proved.
    """

    def __init__(
        self, storage: Storage, exactness: RunExactness, *, tell: Callable[..., None]
    ) -> None:
        self._storage, self._exactness, self._tell = storage, exactness, tell
        self._awaited: dict[str, deque[bytes]] = {}
        self._num_passed = 0
        self._num_missed = 0
        """Digests that were not taken again, so could not be compared."""
        self._counters: Collection[str] = ()
        self._boundary = 0
        self._digests: Digests | None = None

    def follow(self, logger: Logger, parts: Mapping[str, object]) -> None:
        """Compare every line from now on, and write digests of the weights."""
        self._digests = Digests(self._storage, parts, self.compare)
        logger.attach(self)
        logger.attach(self._digests, before=self._digests.take)

    def settle(self) -> None:
        """Write all pending digests; a checkpoint records how far the logs have been written."""
        if self._digests is not None:
            self._digests.settle()

    def gather(
        self,
        offsets: Mapping[str, int],
        *,
        is_same: bool,
        boundary: int,
        run: Run,
    ) -> None:
        """Keep the lines that are about to be truncated; drop them if the run has changed."""
        storage, self._boundary, self._counters = self._storage, boundary, tuple(run.counters)
        if not is_same:
            overlap.drop(storage)
            return
        tails: dict[str, overlap.Tail] = {}
        kept = self._kept()
        for name in _LOGS:
            now = overlap.beyond(storage, name, offsets.get(name, 0))
            before = kept.get(name, now)
            join = overlap.joined if name == METRICS else functools.partial(_merged, boundary)
            tails[name], differ = join(now, before)
            if differ is not None:
                # It was killed before it could report this.
                self._report(name, *differ)
                return
        self._awaited = {name: deque(tail.lines()) for name, tail in tails.items()}
        if any(self._awaited.values()):
            try:
                overlap.keep(storage, tails)
            except StorageError as error:
                reason = f"what was logged before is not kept for a further resume: {error}"
                self._tell("overlap_lost", reason=reason)
        else:
            overlap.drop(storage)

    def _kept(self) -> dict[str, overlap.Tail]:
        try:
            return overlap.kept(self._storage, _LOGS)
        except StorageError as error:
            reason = f"{error}; only what metrics.jsonl itself holds is compared"
            self._tell("overlap_lost", reason=reason)
            return {}

    def write(self, record: Record) -> None:
        """Compare the line of a record; called as a back end of the log."""
        if self._awaited:
            self.compare(METRICS, line_of(record))

    def close(self) -> None:
        """Do nothing."""

    def compare(self, name: str, line: bytes) -> None:
        """Compare a line with the one written at the same position before."""
        awaited = self._awaited.get(name)
        if awaited and name == WEIGHTS:
            self._compare_weights(awaited, line)
        elif awaited:
            before = awaited.popleft()
            if before != line:
                self._report(name, before, line)
                return
            self._num_passed += 1
        if self._num_passed and self._awaited and not any(self._awaited.values()):
            self._agree()

    def _compare_weights(self, awaited: deque[bytes], line: bytes) -> None:
        """Compare digests of the same weights at the same boundary, if there are any."""
        now = overlap.read_line(line) or {}
        while awaited and (was := overlap.read_line(awaited[0]) or {}):
            if was.get("boundary", 0) > now.get("boundary", 0):
                return
            before = awaited.popleft()
            is_missed = was.get("boundary") != now.get("boundary")
            if not is_missed and _are_other_weights(was, now):
                self._report(WEIGHTS, before, line)
                return
            self._num_missed += is_missed or not _weights(was).keys() <= _weights(now).keys()
            if not is_missed:
                return

    def end(self) -> None:
        """Check that a finished run has repeated every line."""
        self.settle()
        if left := self._awaited.get(METRICS):
            self._report(METRICS, left[0], b"{}")
        elif self._awaited and self._num_passed:
            self._num_missed += len(self._awaited.get(WEIGHTS, ()))
            self._agree()
        overlap.drop(self._storage)

    def _agree(self) -> None:
        self._awaited = {}
        if self._num_missed:
            reason = (
                f"{self._num_missed} digests of weights that were written before were not written again, so"
                f" the {self._num_passed} lines that agree prove nothing"
            )
            self._tell("overlap_lost", reason=reason)
            return
        self._exactness.agrees()
        self._tell("resume_agreed", lines=self._num_passed)

    def _report(self, name: str, before: bytes, now: bytes) -> None:
        """Report the first difference between two lines, and stop comparing."""
        self._awaited = {}
        was, found = overlap.read_line(before) or {}, overlap.read_line(now) or {}
        how, details = self._difference(name, was, found)
        reason = f"resumed at boundary {self._boundary}, it {how}: something that decides it is not saved"
        self._exactness.differs(reason)
        self._tell(DIFFERS, reason=reason, at=self._at(was), **details)
        overlap.drop(self._storage)

    def _difference(
        self, name: str, was: Mapping[str, Any], now: Mapping[str, Any]
    ) -> tuple[str, dict[str, Any]]:
        """Describe how a run differs from before, as text and as data."""
        where = self._where(was)
        if not now:
            return f"ended without the line of {name} at {where} that it had written before", {}
        if self._at(was) != self._at(now):
            moved = (
                f"wrote a line of {name} at {self._where(now)} where it had written one at {where}"
            )
            return moved, {"at_now": self._at(now)}
        if name == WEIGHTS:
            key, then, found = _first_difference(_weights(was), _weights(now))
            words = f"had weights of {key} at {where} that are not those it had before"
            return words, {"weights": key, "before": then, "now": found}
        key, then, found = _first_difference(was, now)
        words = f"wrote {key} {_short(found)} at {where} where it had written {_short(then)}"
        return words, {"metric": key, "before": then, "now": found}

    def _at(self, line: Mapping[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in line.items() if name in self._counters}

    def _where(self, line: Mapping[str, Any]) -> str:
        at = self._at(line)
        name = next((name for name in (*_FINEST, *reversed(at)) if name in at), None)
        return f"{name} {at[name]}" if name is not None else "its beginning"


def _first_difference(was: Mapping[str, Any], now: Mapping[str, Any]) -> tuple[str, object, object]:
    """Return the first key whose values differ in two mappings, and both values."""
    for name in {**was, **now}:
        if json.dumps(was.get(name)) != json.dumps(now.get(name)):
            return str(name), was.get(name), now.get(name)
    return "the order of its metrics", list(was), list(now)


def _weights(line: Mapping[str, Any]) -> dict[str, Any]:
    found = line.get("weights")
    return found if isinstance(found, dict) else {}


def _are_other_weights(was: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Return whether the same weights have different digests, in two lines of the same boundary."""
    then, found = _weights(was), _weights(now)
    return any(then[name] != found[name] for name in found if name in then)


def _merged(
    boundary: int, now: overlap.Tail, kept: overlap.Tail
) -> tuple[overlap.Tail, tuple[bytes, bytes] | None]:
    """Return the digests of both tails after a boundary, and the first two that differ."""
    new, old = (
        {(overlap.read_line(line) or {}).get("boundary", 0): line for line in tail.lines()}
        for tail in (now, kept)
    )
    old = {at: line for at, line in old.items() if at > boundary}
    for at in sorted(old.keys() & new.keys()):
        was, found = (overlap.read_line(lines[at]) or {} for lines in (old, new))
        if _are_other_weights(was, found):
            return now, (old[at], new[at])
    if not old:
        return now, None
    both = {**new, **old}
    return overlap.Tail(now.offset, b"".join(both[at] for at in sorted(both))), None


def _short(value: object) -> str:
    """Return a value as short text; `nothing` for a missing metric."""
    text = "nothing" if value is None else json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
