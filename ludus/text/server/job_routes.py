"""Routes of fine-tuning jobs: created, listed, looked up, cancelled, paused and resumed."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request

from ludus.text.server.engine import TextEngine
from ludus.text.server.errors import invalid
from ludus.text.server.file_routes import IdempotencyKey
from ludus.text.server.job_record import JobRecord
from ludus.text.server.pages import page_of, refuse_unknown
from ludus.text.server.schemas import (
    CheckpointPage,
    CreateJob,
    EventPage,
    JobObject,
    JobPage,
)

Limit = Annotated[int, Query(ge=1, le=1000)]
MOST_WAIT = 60.0
_SECONDS = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")
_METADATA = {
    "name": "metadata",
    "in": "query",
    "required": False,
    "style": "deepObject",
    "explode": True,
    "description": "Only jobs with these values: metadata[key]=value; metadata=null for those without any.",
    "schema": {"type": "object", "additionalProperties": True},
}


def job_routes(engine: TextEngine) -> APIRouter:
    """Return the routes under /fine_tuning/jobs."""
    router = APIRouter(prefix="/fine_tuning/jobs", tags=["fine-tuning"])
    _add_changes(router, engine)

    @router.post("", response_model=JobObject)
    def create_job(body: CreateJob, idempotency_key: IdempotencyKey = None) -> dict[str, Any]:
        """Create a job, or return the one with the same metadata.ludus_key or Idempotency-Key."""
        return engine.jobs.create(body.to_request(), idempotency_key=idempotency_key).to_json()

    @router.get("", response_model=JobPage, openapi_extra={"parameters": [_METADATA]})
    def list_jobs(request: Request, after: str | None = None, limit: Limit = 20) -> dict[str, Any]:
        """List the jobs, the newest first."""
        refuse_unknown(request, "after", "limit", "metadata")
        wanted = _wanted_metadata(request)
        found = [job for job in engine.jobs.store.listed() if _fits(job, wanted)]
        return page_of(
            found,
            name=lambda job: job.id,
            to_json=JobRecord.to_json,
            after=after, limit=limit,
        )  # fmt: skip

    @router.get("/{job_id}", response_model=JobObject)
    async def retrieve_job(
        job_id: str, prefer: Annotated[str | None, Header(max_length=200)] = None
    ) -> dict[str, Any]:
        """Return a job; with the header `Prefer: wait=30, status=running`, once its status is another.

        The wait is an addition, at most a minute; then the job is returned as it stands.
        """
        wait, status = _preferred(prefer)
        job = engine.jobs.store.get(job_id)
        if wait and status == job.status and not job.has_ended:
            changed = asyncio.wrap_future(engine.jobs.store.when_changed(job_id, job.status))
            await asyncio.wait([changed], timeout=wait)
            changed.cancel()
        return engine.jobs.store.get(job_id).to_json()

    @router.get("/{job_id}/events", response_model=EventPage)
    def list_events(
        request: Request, job_id: str, after: str | None = None, limit: Limit = 20
    ) -> dict[str, Any]:
        """List what has happened to a job, the newest first."""
        refuse_unknown(request, "after", "limit")
        found = engine.jobs.store.events(job_id)
        return page_of(
            found, name=lambda event: event["id"], to_json=dict, after=after, limit=limit
        )

    @router.get("/{job_id}/checkpoints", response_model=CheckpointPage)
    def list_checkpoints(
        request: Request, job_id: str, after: str | None = None, limit: Limit = 10
    ) -> dict[str, Any]:
        """List the models that a job has kept, the newest first."""
        refuse_unknown(request, "after", "limit")
        found = engine.jobs.checkpoints(job_id)
        return page_of(found, name=lambda one: one["id"], to_json=dict, after=after, limit=limit)

    return router


def _add_changes(router: APIRouter, engine: TextEngine) -> None:
    @router.post("/{job_id}/cancel", response_model=JobObject)
    def cancel_job(job_id: str) -> dict[str, Any]:
        """Cancel a job."""
        return engine.jobs.cancel(job_id).to_json()

    @router.post("/{job_id}/pause", response_model=JobObject)
    def pause_job(job_id: str) -> dict[str, Any]:
        """Pause a job; one that runs is `pausing` until it has saved its state."""
        return engine.jobs.pause(job_id).to_json()

    @router.post("/{job_id}/resume", response_model=JobObject)
    def resume_job(job_id: str) -> dict[str, Any]:
        """Resume a paused job exactly where it was, or one that failed by no fault of its files."""
        return engine.jobs.resume(job_id).to_json()


def _wanted_metadata(request: Request) -> dict[str, str] | None:
    """Return the metadata that jobs are listed by; None lists those without any."""
    wanted = {}
    for name, value in request.query_params.multi_items():
        if name == "metadata" and value == "null":
            return None
        if name.startswith("metadata[") and name.endswith("]"):
            wanted[name[len("metadata[") : -1]] = value
        elif name.startswith("metadata"):
            raise invalid(f"Invalid '{name[:80]}': write metadata[key]=value.", "metadata")
    return wanted


def _fits(job: JobRecord, wanted: dict[str, str] | None) -> bool:
    metadata = job.request.metadata
    if wanted is None:
        return not metadata
    return all(metadata.get(name) == value for name, value in wanted.items())


def _preferred(prefer: str | None) -> tuple[float, str | None]:
    """Return the seconds and the status of a Prefer header (RFC 7240); others are ignored, as it asks."""
    parts = [part.strip().partition("=") for part in (prefer or "").split(",")]
    found = {name.strip().lower(): value.strip() for name, _, value in parts}
    wait = _SECONDS.fullmatch(found.get("wait", ""))
    return 0.0 if wait is None else min(float(wait[0]), MOST_WAIT), found.get("status")
