"""JobRunner: a thread that hands one job after the other to a warm worker process, and sees to its end.

A worker that dies is started again, and its job goes on from the last saved state, exactly.
"""

from __future__ import annotations

import os
import select
import shutil
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ludus.core.errors import LudusError
from ludus.core.services import drop_message
from ludus.process.child import Child, ChildDied, ChildFailed, ChildHung
from ludus.text.models.library import ModelLibrary
from ludus.text.server.job_record import JobError, JobRecord
from ludus.text.server.job_store import JobStore
from ludus.text.server.settings import EngineSettings, Say

WORKER = "ludus.text.server.worker"
_GRACE = 10.0
"""Seconds in which a worker may save and stop."""
_PAUSE = 5.0
"""Seconds until a job is tried again whose status cannot be written."""


class JobRunner:
    """Runs the jobs that are queued, the oldest first."""

    def __init__(
        self,
        store: JobStore,
        library: ModelLibrary,
        runs: Path,
        settings: EngineSettings,
        *,
        tell: Say = drop_message,
        start_worker: Callable[[], Child] = lambda: Child(WORKER, name="the tuning worker"),
    ) -> None:
        """`runs` is the directory of their runs."""
        self._store = store
        self._library = library
        self._runs = runs
        self._settings = settings
        self._tell = tell
        self.start_worker = start_worker
        self._child: Child | None = None
        self._bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._is_warm = False
        self._is_closing = False
        self._steps: dict[str, int] = {}
        """The steps that the running job has taken."""
        # The worker dies with this thread, so it lives as long as the server.
        self._thread = threading.Thread(target=self._run, name="fine-tuning jobs", daemon=True)

    def start(self) -> None:
        """Begin to run jobs, and delete what a killed server has left of those that need it no more."""
        for directory in sorted(self._runs.iterdir()) if self._runs.is_dir() else ():
            job = self._store.find(directory.name)
            if job is not None and job.status in ("succeeded", "cancelled"):
                self.forget(job)
        self._thread.start()

    def poke(self) -> None:
        """Say that a job has changed."""
        os.eventfd_write(self._bell, 1)

    def warm(self) -> None:
        """Start the worker already, for a job that is about to be queued."""
        self._is_warm = True
        self.poke()

    @property
    def worker_pid(self) -> int | None:
        """Process id of the worker, if there is one."""
        child = self._child
        return None if child is None else child.pid

    def close(self) -> None:
        """Stop the running job where it can be resumed, and the worker."""
        self._is_closing = True
        self.poke()
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._bell)

    def _run(self) -> None:
        while not self._is_closing:
            job = self._next()
            if job is None:
                if self._is_warm:
                    self._worker()
                self._listen([], None)
                continue
            try:
                self._run_job(job)
            except Exception as error:
                # A mistake of the server itself, such as a full disk, must not end all jobs.
                self._tell(f"job {job.id} failed: {type(error).__name__}: {error}")
                try:
                    self._fail(job, "server_error", f"{type(error).__name__}: {error}")
                except LudusError:
                    self._listen([], _PAUSE)
        if self._child is not None:
            self._child.close()
            self._child = None

    def _next(self) -> JobRecord | None:
        """Return the job that an earlier server was running, else the oldest that is queued."""
        found = [job for job in self._store.listed() if job.status in ("queued", "running")]
        return min(found, key=lambda job: (job.status == "queued", job.number), default=None)

    def _worker(self) -> Child:
        if self._child is None:
            self._child = self.start_worker()
        return self._child

    def _run_job(self, job: JobRecord) -> None:
        if self._store.change(job.id, of={"queued", "running"}, status="running") is None:
            return
        try:
            base = self._library.directory(job.request.model)
        except LudusError as error:
            self._fail(job, "model_not_found", str(error))
            return
        try:
            child = self._worker()
            child.send({"do": "tune", "task": self._task(job, base)})
            answer = self._answer(job, child)
        except ChildFailed as error:
            self._fail(job, _code(error.kind), str(error))
        except (ChildDied, ChildHung) as error:
            self._child = None
            self._crashed(job, error)
        else:
            if answer.get("status") == "succeeded":
                self._succeeded(job, answer)
            elif not self._is_closing:
                self._store.change(job.id, of={"pausing"}, status="paused")
                if self._store.get(job.id).status == "cancelled":
                    self.forget(job)

    def _task(self, job: JobRecord, base: Path) -> dict[str, Any]:
        """Return what the worker needs to know."""
        validation = self._store.path(job.id, "validation")
        return {
            "directory": str(self._runs / job.id),
            "model": str(base),
            "training": str(self._store.path(job.id, "training")),
            "validation": None if validation is None else str(validation),
            "method": job.request.method,
            "hyperparameters": dict(job.request.hyperparameters),
            "seed": job.seed,
            "device": self._settings.device,
            "num_threads": self._settings.num_threads or 1,
        }

    def _answer(self, job: JobRecord, child: Child) -> Mapping[str, Any]:
        """Return the worker's answer; record progress, and ask it to stop once the job is not wanted."""
        deadline: float | None = None
        is_heard = True
        while True:
            wait = None if deadline is None else max(0.0, deadline - time.monotonic())
            if self._listen(child.descriptors(), wait):
                header, _ = child.receive()
                if "heard" in header:
                    is_heard = True
                elif "progress" in header:
                    self._record(job, header["progress"])
                else:
                    if not is_heard:
                        # The request to stop came too late, and is answered after the job.
                        child.receive()
                    return header
            elif deadline is not None and time.monotonic() >= deadline:
                child.kill()
                self._child = None
                return {"status": "stopped"}
            is_wanted = self._store.get(job.id).status == "running" and not self._is_closing
            if deadline is None and not is_wanted:
                child.send({"do": "stop"})
                is_heard = False
                deadline = time.monotonic() + _GRACE

    def _listen(self, descriptors: list[int], seconds: float | None) -> bool:
        """Return whether one of the descriptors is readable, waiting for that or for the bell."""
        poll = select.poll()
        for descriptor in (*descriptors, self._bell):
            poll.register(descriptor, select.POLLIN)
        ready = {fd for fd, _ in poll.poll(None if seconds is None else 1000 * seconds)}
        if self._bell in ready:
            os.eventfd_read(self._bell)
        return bool(ready - {self._bell})

    def _record(self, job: JobRecord, progress: Mapping[str, Any]) -> None:
        step, num_steps, metrics = progress["step"], progress["num_steps"], progress["metrics"]
        self._steps[job.id] = max(step, self._steps.get(job.id, 0))
        losses = {
            "training": metrics.get("train_loss"),
            "validation": metrics.get("full_valid_loss"),
        }
        found = [f"{name} loss={loss:.4f}" for name, loss in losses.items() if loss is not None]
        if not found:
            return
        text = f"Step {step}/{num_steps}: {', '.join(found)}"
        data = {"step": step, "total_steps": num_steps, **metrics}
        # A resumed job repeats the steps after its last saved state, with the same figures.
        is_epoch = losses["validation"] is not None
        mark = f"epoch:{progress['epoch']}" if is_epoch else f"step:{step}"
        self._store.add_event(job.id, text, data=data, mark=mark)

    def _succeeded(self, job: JobRecord, answer: Mapping[str, Any]) -> None:
        if job.tuned_model not in self._library:
            self._library.add(job.tuned_model, answer["directory"], origin=job.request.model)
        done = self._store.change(
            job.id,
            of={"running", "pausing"},
            status="succeeded",
            trained_tokens=answer["trained_tokens"],
            hyperparameters=answer["hyperparameters"],
        )
        if done is None:
            # It was cancelled while its model was being kept.
            self._library.delete(job.tuned_model)
        self.forget(job)

    def forget(self, job: JobRecord) -> None:
        """Delete the run of a job that needs it no more; its metrics are among the events."""
        shutil.rmtree(self._runs / job.id, ignore_errors=True)

    def _fail(self, job: JobRecord, code: str, message: str) -> None:
        self._store.change(
            job.id,
            of={"queued", "running", "pausing"},
            status="failed",
            error=JobError(code, message),
        )

    def _crashed(self, job: JobRecord, error: ChildDied | ChildHung) -> None:
        """Let the job go on in another worker, unless it has died too often."""
        self._tell(f"job {job.id}: {error}")
        found, step = self._store.get(job.id), self._steps.get(job.id, 0)
        has_progress = step > found.crashed_at_step
        count = 1 if has_progress else found.num_crashes + 1
        if count >= self._settings.max_crashes:
            self._fail(
                job,
                "worker_died",
                f"The job failed: its process ended {count} times without taking a step. {error}",
            )
            return
        self._store.add_event(
            job.id, f"The worker ended, and is started again: {error}", level="warn"
        )
        self._store.change(
            job.id, of={"running", "pausing"}, num_crashes=count, crashed_at_step=step
        )
        self._store.change(job.id, of={"pausing"}, status="paused")


def _code(kind: str) -> str:
    """Return the code of an error that the worker has reported."""
    if kind in ("OutOfMemoryError", "MemoryError"):
        return "out_of_memory"
    return "invalid_training_file" if kind == "BadLinesError" else "tuning_failed"
