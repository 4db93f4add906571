"""Fine-tuning jobs: created once, validated, handed to the worker, and changed on request."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ludus.core.errors import ConfigError, LudusError
from ludus.text.jobs import KEY_NAME
from ludus.text.models.library import ModelLibrary
from ludus.text.server.errors import ApiError, invalid, no_such_model, shown
from ludus.text.server.files import FileStore, reused_key
from ludus.text.server.ids import digest_of, id_of_key, new_id
from ludus.text.server.job_record import (
    OPEN,
    JobError,
    JobRecord,
    JobRequest,
    ServerStatus,
)
from ludus.text.server.job_runner import JobRunner
from ludus.text.server.job_store import JobStore
from ludus.text.tuning.lines import read_lines

_TUNED = re.compile(r"ft:(.+):ludus:[^:]*:[^:]+")
_METRICS = (
    "step",
    "train_loss",
    "train_mean_token_accuracy",
    "full_valid_loss",
    "full_valid_mean_token_accuracy",
)
_PLAIN = re.compile(r"[^A-Za-z0-9_.-]+")


class Jobs:
    """What clients may do with the jobs of a root; safe to call from several threads."""

    def __init__(
        self, store: JobStore, files: FileStore, library: ModelLibrary, runner: JobRunner
    ) -> None:
        self.store = store
        self._files = files
        self._library = library
        self.runner = runner
        self._validation = ThreadPoolExecutor(1, thread_name_prefix="validation of training files")

    def start(self) -> None:
        """Go on with the jobs that an earlier server left open."""
        for job in reversed(self.store.listed()):
            if job.status == "validating_files":
                self._validation.submit(self._validate, job)
            elif job.status == "pausing":
                # Its worker has ended with that server, and what it saved can be resumed.
                self.store.change(job.id, of={"pausing"}, status="paused")
        self.runner.start()

    def close(self) -> None:
        """Stop; open jobs go on when the root is served again."""
        self._validation.shutdown(cancel_futures=True)
        self.runner.close()

    def create(self, request: JobRequest, *, idempotency_key: str | None = None) -> JobRecord:
        """Create a job and return it; one with the same key is returned as it stands.

        The key is metadata.ludus_key, and without it the idempotency key.
        """
        digest = digest_of(asdict(request))
        key = request.metadata.get(KEY_NAME)
        job_id = new_id("ftjob", idempotency_key) if key is None else id_of_key("ftjob", key)
        if (found := self.store.find(job_id)) is not None:
            return _again(found, digest, has_key=key is not None)
        if request.model not in self._library:
            raise no_such_model(request.model)
        training, validation = request.training_file, request.validation_file
        self._check_file(training, "training_file")
        if validation is not None:
            self._check_file(validation, "validation_file")

        seed = _seed(request, job_id, is_keyed=key is not None or idempotency_key is not None)
        name = self._tuned_name(request, job_id)

        def make(number: int) -> JobRecord:
            return JobRecord(job_id, number, int(time.time()), request, digest, seed, name)

        def fill(place: Path) -> None:
            self._files.link(training, place / "training")
            if validation is not None:
                self._files.link(validation, place / "validation")

        job, is_new = self.store.create(job_id, make, fill)
        if not is_new:
            return _again(job, digest, has_key=key is not None)
        self.runner.warm()
        self._validation.submit(self._validate, job)
        return job

    def _check_file(self, file_id: str, param: str) -> None:
        file = self._files.get(file_id, param)
        if file.purpose != "fine-tune":
            raise invalid(
                f"The file {shown(file_id)} has the purpose '{file.purpose}'; upload it with 'fine-tune'.",
                param,
                "invalid_file_purpose",
            )

    def _tuned_name(self, request: JobRequest, job_id: str) -> str:
        """Return the name of the tuned model, after the model at the beginning of the chain."""
        tuned = _TUNED.fullmatch(request.model)
        base = request.model if tuned is None else tuned[1]
        suffix = _PLAIN.sub("-", request.suffix)
        name = f"ft:{base}:ludus:{suffix}:{job_id[6:14]}"
        try:
            self._library.check_free(name)
        except ConfigError as error:
            raise invalid(f"The tuned model cannot have this name: {error}.", "suffix") from None
        return name

    def _validate(self, job: JobRecord) -> None:
        """Read the files of a job, so that a mistake in them is reported before its turn comes."""
        try:
            for param in ("training_file", "validation_file"):
                path = self.store.path(job.id, param.removesuffix("_file"))
                if path is not None:
                    file_id = getattr(job.request, param)
                    read_lines(
                        path.read_bytes(), job.request.method, source=f"The {param} {file_id}"
                    )
        except (LudusError, OSError) as error:
            problem = JobError(f"invalid_{param}", str(error), param)
            self.store.change(job.id, of={"validating_files"}, status="failed", error=problem)
        except Exception as error:
            problem = JobError("server_error", f"{type(error).__name__}: {error}")
            self.store.change(job.id, of={"validating_files"}, status="failed", error=problem)
        else:
            self.store.change(job.id, of={"validating_files"}, status="queued")
            self.runner.poke()

    def cancel(self, job_id: str) -> JobRecord:
        """Cancel a job; the model it would have made is never there."""
        waiting = self.store.change(job_id, of={"queued", "paused"}, status="cancelled")
        if waiting is not None:
            self.runner.forget(waiting)
        else:
            self._changed(job_id, "cancelled", of={*OPEN, "paused"})
            self.runner.poke()
        return self.store.get(job_id)

    def pause(self, job_id: str) -> JobRecord:
        """Pause a job; one that runs saves its state first."""
        job = self.store.get(job_id)
        if job.status not in ("paused", "pausing"):
            if self.store.change(job_id, of={"running"}, status="pausing") is None:
                self._changed(job_id, "paused", of={"queued"})
            self.runner.poke()
        return self.store.get(job_id)

    def resume(self, job_id: str) -> JobRecord:
        """Queue a paused job again, or one that failed for a reason other than its files."""
        job = self.store.get(job_id)
        if job.error is not None and not job.error.code.startswith("invalid_"):
            self.store.change(
                job_id, of={"failed"}, status="queued", error=None, finished_at=None, num_crashes=0
            )
        elif job.status not in ("queued", "running"):
            self._changed(job_id, "queued", of={"paused"})
        self.runner.poke()
        return self.store.get(job_id)

    def checkpoints(self, job_id: str) -> list[dict[str, Any]]:
        """Return the models that a job has kept, as objects of the API: the tuned one."""
        job = self.store.get(job_id)
        if job.status != "succeeded":
            return []
        metrics: dict[str, Any] = {}
        for event in reversed(self.store.events(job_id)):
            metrics |= event["data"]
        return [
            {
                "id": f"ftckpt-{job_id.partition('-')[2]}",
                "object": "fine_tuning.job.checkpoint",
                "created_at": job.finished_at,
                "fine_tuning_job_id": job_id,
                "fine_tuned_model_checkpoint": job.tuned_model,
                "step_number": metrics.get("step", 0),
                "metrics": {name: metrics[name] for name in metrics if name in _METRICS},
            }
        ]

    def _changed(self, job_id: str, status: ServerStatus, *, of: Iterable[ServerStatus]) -> None:
        if self.store.change(job_id, of=of, status=status) is not None:
            return
        job = self.store.get(job_id)
        # A repeated request finds what the first one did.
        if job.status != status:
            wish = {"cancelled": "cancelled", "paused": "paused", "queued": "resumed"}[status]
            raise ApiError(
                400,
                f"Job {job_id} has the status {job.status}, so it cannot be {wish}.",
                "fine_tune_id",
                "invalid_job_status",
            )


def _again(found: JobRecord, digest: str, *, has_key: bool) -> JobRecord:
    """Return a job that was created before; an idempotency key may only repeat the same request."""
    if not has_key and found.digest != digest:
        raise reused_key()
    return found


def _seed(request: JobRequest, job_id: str, *, is_keyed: bool) -> int:
    if request.seed is not None:
        return request.seed
    return int(job_id[6:14], 16) if is_keyed else secrets.randbelow(1 << 31)
