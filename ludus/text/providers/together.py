"""Together: chat completions as OpenAI's, fine-tuning jobs in a form of its own.

Written from its API reference and the types of its Python package (November 2026) and not run against it: the
paths (files/upload, fine-tunes), the fields and the statuses were read there. Its jobs carry no metadata, so
the key stands in the name of the training file: the job with a key is the one that is trained on that file.
"""

from __future__ import annotations

import datetime
import urllib.parse
from collections.abc import Mapping
from typing import Any, ClassVar

from ludus.config.registry import register
from ludus.text.client.failures import plain, unreadable
from ludus.text.client.secret import KeyConfig
from ludus.text.jobs import Job, JobSpec, Status
from ludus.text.provider import ProviderError
from ludus.text.providers._openai_api import OpenaiApi, ServerConfig

_STATUSES: Mapping[str, Status] = {
    "running": "running",
    "compressing": "running",
    "uploading": "running",
    "completed": "succeeded",
    "error": "failed",
    "user_error": "failed",
    "cancelled": "cancelled",
}
_MOST_SUFFIX = 40


class TogetherConfig(ServerConfig):
    """Together."""

    key: KeyConfig
    """Where the API key is read."""


@register("provider", "together")
class Together(OpenaiApi):
    """Samples and tunes under one address."""

    Config: ClassVar[type[TogetherConfig]] = TogetherConfig
    label = "Together"

    async def create_job(self, spec: JobSpec) -> Job:
        """Upload the training file, named by the key, unless it is there, and create a job on it."""
        left = dict(spec.hyperparameters)
        method: dict[str, Any] = {"method": "sft" if spec.method == "supervised" else "dpo"}
        if spec.method == "dpo" and "beta" in left:
            method["dpo_beta"] = left.pop("beta")
        unknown = sorted(left.keys() - {"n_epochs", "batch_size", "learning_rate"})
        if unknown:
            raise ProviderError(
                f"Together has no hyperparameters named {' and '.join(unknown)}; it takes n_epochs,"
                " batch_size and learning_rate, and beta for dpo"
            )
        file_id = await self._file_of(spec)
        body = {
            "model": spec.model,
            "training_file": file_id,
            "training_method": method,
            "suffix": spec.suffix[:_MOST_SUFFIX],
            **left,
        }
        return self.read_job(await self.http.post("/fine-tunes", body))

    async def _file_of(self, spec: JobSpec) -> str:
        """Return the id of the training file of a job, uploading it if it is not there."""
        try:
            if known := await self._files(spec.key):
                return known[0]
            name = _file_name(spec.key)
            fields = {"purpose": "fine-tune", "file_name": name, "file_type": "jsonl"}
            path = "/files/upload"
            found = await self.http.upload(path, fields, file_name=name, content=spec.lines)
            return str(found["id"])
        except (KeyError, TypeError):
            raise unreadable("an uploaded file without an id", name=self.label) from None
        except ProviderError as error:
            # No job was asked for yet, whatever became of the file.
            error.is_known = True
            raise

    async def _files(self, key: str) -> list[str]:
        rows = _rows(await self.http.get("/files"), name=self.label)
        return [str(row["id"]) for row in rows if row.get("filename") == _file_name(key)]

    async def find_jobs(self, key: str) -> list[Job]:
        """Return the jobs that are trained on the file of this key, the oldest first."""
        files = await self._files(key)
        rows = _rows(await self.http.get("/fine-tunes"), name=self.label) if files else []
        jobs = [self._read(row, key) for row in rows if row.get("training_file") in files]
        return sorted(jobs, key=lambda job: (job.created_at, job.id))

    async def job(self, job_id: str) -> Job:
        """Return how a job stands."""
        return self.read_job(await self.http.get(self.job_path(job_id)))

    async def cancel_job(self, job_id: str) -> Job:
        """Cancel a job."""
        return self.read_job(await self.http.post(f"{self.job_path(job_id)}/cancel", {}))

    def job_path(self, job_id: str) -> str:
        """Return the path of a job."""
        return f"/fine-tunes/{urllib.parse.quote(job_id, safe='')}"

    def read_job(self, found: object) -> Job:
        """Return a job object; its key is known only by who looked for it."""
        return self._read(found, None)

    def _read(self, found: object, key: str | None) -> Job:
        row = found if isinstance(found, dict) else {}
        if not isinstance(row.get("id"), str):
            raise unreadable("a job without an id", name=self.label)
        status = _STATUSES.get(str(row.get("status")), "pending")
        events = row.get("events")
        last = events[-1] if isinstance(events, list) and events else {}
        message = last.get("message") if isinstance(last, dict) else None
        tokens = row.get("token_count")
        name = row.get("model_output_name") or row.get("output_name")
        return Job(
            id=row["id"],
            status=status,
            model=str(row.get("model", "")),
            key=key,
            fine_tuned_model=str(name) if name and status == "succeeded" else None,
            error=plain(str(message)) if message and status == "failed" else None,
            trained_tokens=tokens if isinstance(tokens, int) and tokens > 0 else None,
            created_at=_seconds(row.get("created_at")),
            more={"status": plain(str(row.get("status")))},
        )


def _file_name(key: str) -> str:
    return f"ludus-{key}.jsonl"


def _rows(page: object, *, name: str) -> list[dict[str, Any]]:
    rows = page.get("data") if isinstance(page, dict) else page
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise unreadable("a list without its rows", name=name)
    return rows


def _seconds(text: object) -> int:
    if isinstance(text, int):
        return text
    try:
        return int(datetime.datetime.fromisoformat(str(text)).timestamp())
    except ValueError:
        return 0
