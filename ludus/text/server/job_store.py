"""Fine-tuning jobs on disk, durable at each change of status.

jobs/<id>/job.json        the record
jobs/<id>/training        the training file, kept though the upload is deleted
jobs/<id>/validation      the validation file, if there is one
jobs/<id>/events.jsonl    what has happened
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Literal

from ludus.core.errors import StorageError
from ludus.store.files import Append, write_durably
from ludus.store.local import LocalStorage
from ludus.text.server.errors import no_such_job
from ludus.text.server.ids import is_id
from ludus.text.server.job_record import JobRecord, ServerStatus

Level = Literal["info", "warn", "error"]
_SAID: dict[ServerStatus, str] = {
    "queued": "Files validated, moving job to queued state",
    "running": "Fine-tuning job started",
    "pausing": "Fine-tuning job is being paused",
    "paused": "Fine-tuning job paused",
    "succeeded": "The job has successfully completed",
    "cancelled": "The job was cancelled",
}


class JobStore:
    """The jobs of a root; safe to call from several threads."""

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage
        self._guard = threading.RLock()
        self._jobs: dict[str, JobRecord] = {}
        self._logs: dict[str, _EventLog] = {}
        self._waiting: list[tuple[str, ServerStatus, Future[JobRecord]]] = []
        found = (self._read(name) for name in storage.names("jobs") if is_id(name))
        for job in sorted(found, key=lambda job: job.number):
            self._jobs[job.id] = job
        self._number = max((job.number for job in self._jobs.values()), default=0)

    def _read(self, job_id: str) -> JobRecord:
        name = f"jobs/{job_id}/job.json"
        try:
            return JobRecord.from_json(json.loads(self._storage.read(name)))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StorageError(
                f"{self._storage.place}/{name} is damaged ({error}); delete its directory if the job need"
                " not be known"
            ) from error

    def create(
        self, job_id: str, make: Callable[[int], JobRecord], fill: Callable[[Path], None]
    ) -> tuple[JobRecord, bool]:
        """Create a job durably, and return it and True; one that there is already with False.

        `make` takes the number of the job; `fill` puts its files into its directory.
        """
        with self._guard:
            if (found := self._jobs.get(job_id)) is not None:
                return found, False
            job = make(self._number + 1)

            def whole(place: Path) -> None:
                fill(place)
                write_durably(place / "job.json", [json.dumps(asdict(job)).encode()])

            self._storage.commit(f"jobs/{job_id}", whole, step=lambda point: None)
            self._jobs[job_id] = job
            self._number = job.number
            self.add_event(job_id, f"Created fine-tuning job: {job_id}", mark="created")
            self.add_event(
                job_id,
                f"Validating training file: {job.request.training_file}",
                mark="validating_files",
            )
        return job, True

    def get(self, job_id: str) -> JobRecord:
        """Return a job, or raise ApiError."""
        job = self._jobs.get(job_id)
        if job is None:
            raise no_such_job(job_id)
        return job

    def find(self, job_id: str) -> JobRecord | None:
        """Return a job, or None."""
        return self._jobs.get(job_id)

    def listed(self) -> list[JobRecord]:
        """Return the jobs, the newest first."""
        return list(reversed(list(self._jobs.values())))

    def change(
        self,
        job_id: str,
        *,
        of: Iterable[ServerStatus],
        status: ServerStatus | None = None,
        **changes: Any,
    ) -> JobRecord | None:
        """Change a job durably if its status is one `of` these; return the new record, or None."""
        with self._guard:
            job = self.get(job_id)
            if job.status not in of:
                return None
            changed = replace(job, status=status or job.status, **changes)
            if changed.has_ended:
                changed = replace(changed, finished_at=int(time.time()))
            said = changed.error.message if changed.error else _SAID.get(changed.status)
            if changed.status != job.status and said is not None:
                level: Level = "error" if changed.status == "failed" else "info"
                self.add_event(job_id, said, level=level)
            name = f"jobs/{job_id}/job.json"
            self._storage.write(name, json.dumps(asdict(changed)).encode())
            self._jobs[job_id] = changed
            if changed.status not in ("running", "pausing"):
                self._close_log(job_id)
        self._wake(changed)
        return changed

    def path(self, job_id: str, name: str) -> Path | None:
        """Return the path of a file of a job, or None if it has none of this name."""
        path = self._storage.path(f"jobs/{self.get(job_id).id}/{name}")
        return path if path.exists() else None

    def add_event(
        self,
        job_id: str,
        message: str,
        *,
        level: Level = "info",
        data: dict[str, Any] | None = None,
        mark: str | None = None,
    ) -> None:
        """Record what has happened; a mark that was recorded before is not recorded again."""
        with self._guard:
            if job_id not in self._logs:
                self._logs[job_id] = _EventLog(self._storage, job_id)
            self._logs[job_id].add(message, level=level, data=data, mark=mark)
            if self._jobs[job_id].status not in ("running", "pausing"):
                self._close_log(job_id)

    def _close_log(self, job_id: str) -> None:
        if (log := self._logs.pop(job_id, None)) is not None:
            log.close()

    def events(self, job_id: str) -> list[dict[str, Any]]:
        """Return the events of a job as objects of the API, the newest first."""
        name = f"jobs/{self.get(job_id).id}/events.jsonl"
        if not self._storage.exists(name):
            return []
        found = [json.loads(line) for line in self._storage.lines(name)]
        return [_event(job_id, number, one) for number, one in reversed(list(enumerate(found)))]

    def when_changed(self, job_id: str, status: ServerStatus) -> Future[JobRecord]:
        """Return a future of the job, done once its status is another than this one; it may be cancelled."""
        changed: Future[JobRecord] = Future()
        with self._guard:
            job = self.get(job_id)
            if job.status == status:
                self._waiting.append((job_id, status, changed))
                changed.add_done_callback(lambda done: self._forget(done))
            else:
                changed.set_result(job)
        return changed

    def _forget(self, future: Future[JobRecord]) -> None:
        with self._guard:
            self._waiting = [one for one in self._waiting if one[2] is not future]

    def _wake(self, job: JobRecord) -> None:
        with self._guard:
            waiting = list(self._waiting)
        for job_id, status, changed in waiting:
            if job_id == job.id and status != job.status:
                _settle(changed, job)

    def wake(self) -> None:
        """End every wait for a change, though nothing has changed."""
        with self._guard:
            waiting = list(self._waiting)
        for job_id, _, changed in waiting:
            _settle(changed, self.get(job_id))

    def close(self) -> None:
        """Close the logs."""
        with self._guard:
            for job_id in list(self._logs):
                self._close_log(job_id)


class _EventLog:
    """The open events of one job."""

    def __init__(self, storage: LocalStorage, job_id: str) -> None:
        name = f"jobs/{job_id}/events.jsonl"
        self._file = Append(storage.path(name))
        self._marks = set(_marks(storage.lines(name)))

    def add(
        self, message: str, *, level: Level, data: dict[str, Any] | None, mark: str | None
    ) -> None:
        if mark is not None and mark in self._marks:
            return
        event = {
            "created_at": int(time.time()),
            "level": level,
            "message": message,
            "data": data,
            "mark": mark,
        }
        self._file.write(json.dumps(event).encode() + b"\n")
        if mark is not None:
            self._marks.add(mark)

    def close(self) -> None:
        self._file.flush()
        self._file.close()


def _settle(waiting: Future[JobRecord], job: JobRecord) -> None:
    # It may have been cancelled, or settled by another change, a moment ago.
    with contextlib.suppress(InvalidStateError):
        waiting.set_result(job)


def _marks(lines: Iterable[bytes]) -> Iterable[str]:
    return (mark for line in lines if (mark := json.loads(line)["mark"]) is not None)


def _event(job_id: str, number: int, found: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": f"ftevent-{job_id.partition('-')[2]}-{number:06d}",
        "object": "fine_tuning.job.event",
        "created_at": found["created_at"],
        "level": found["level"],
        "message": found["message"],
        "type": "message" if found["data"] is None else "metrics",
        "data": found["data"] or {},
    }
