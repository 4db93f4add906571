"""The provider of tables with faults: it stops the process at a request or a job, and lets jobs end badly.

What it answers is also written to a file, so that the requests of a killed process are known.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from ludus.config.registry import register
from ludus.core.errors import Interrupted
from ludus.testing.trainers import Killed
from ludus.text.chat import ChatAnswer, ChatRequest
from ludus.text.jobs import Job, JobSpec, Status
from ludus.text.provider import ProviderConfig, ProviderServices
from tests.text.tabular import Tabular

ERROR = "the loss became nan\nin step 3 of 8"


class FaultyTablesConfig(ProviderConfig):
    """Tables, and what goes wrong."""

    kind: Literal["faulty_tables"]
    """Models that are tables, with faults."""
    stop_at_request: int | None
    """Stop at this request, counted from 1; null: never."""
    stop_at_job: int | None
    """Stop once so many jobs were created, before the last of them is reported; null: never."""
    stops_by: Literal["kill", "exit", "pause"]
    """What stops it: an exception that nobody catches, the end of the process, or a request to pause."""
    endings: dict[str, Literal["failed", "cancelled"]]
    """How the jobs of these groups end."""
    least: int
    """The least number of examples of a job."""


def faulty(**changes: Any) -> dict[str, Any]:
    """Return the section of a provider without faults but for these."""
    plain = {"stop_at_request": None, "stop_at_job": None, "stops_by": "kill"}
    return {"kind": "faulty_tables", **plain, "endings": {}, "least": 1, **changes}


@register("provider", "faulty_tables")
class FaultyTables(Tabular):
    """Answers as the tables do, until something goes wrong."""

    Config = FaultyTablesConfig
    config: FaultyTablesConfig

    def __init__(self, config: ProviderConfig, services: ProviderServices) -> None:
        super().__init__(config, services)
        self.min_examples = self.config.least  # type: ignore[misc]
        self._num_asked = self._num_created = 0
        self.specs: list[JobSpec] = []
        self.num_in_flight = self.most_in_flight = 0

    async def open(self) -> None:
        await super().open()
        assert self._file is not None
        self._asked = self._file.with_name("asked.jsonl")

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        self._num_asked += 1
        if self._num_asked == self.config.stop_at_request:
            self._stop()
        self.num_in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.num_in_flight)
        # Others may begin before it is answered, as at a server.
        await asyncio.sleep(0)
        self.num_in_flight -= 1
        answer = await super().chat(request)
        with self._asked.open("a") as file:
            file.write(json.dumps([request.digest(), request.model]) + "\n")
        return answer

    async def create_job(self, spec: JobSpec) -> Job:
        job = await super().create_job(spec)
        self.specs.append(spec)
        group = spec.scope.split("/")[2]
        ending = self.config.endings.get(group, "succeeded")
        number = len(self.data["jobs"])
        self.data["jobs"][job.id] |= {"group": group, "ending": ending, "number": number}
        self._save()
        assert self._file is not None
        self._file.with_name(f"{job.id}.jsonl").write_bytes(spec.lines)
        self._num_created += 1
        if self._num_created == self.config.stop_at_job:
            self._stop()
        return self._job(job.id)

    def _job(self, job_id: str) -> Job:
        job = super()._job(job_id)
        ending: Status = self.data["jobs"][job_id].get("ending", "succeeded")
        if ending == "succeeded":
            return job
        error = ERROR if ending == "failed" else None
        return replace(job, status=ending, error=error, fine_tuned_model=None)

    def _stop(self) -> None:
        if self.config.stops_by == "exit":
            os._exit(9)
        if self.config.stops_by == "pause":
            raise Interrupted("the run was asked to pause")
        raise Killed


def asked(run_dir: str | Path) -> list[str]:
    """Return the digest of each request that was answered in a run, in order."""
    return [digest for digest, _ in _requests(run_dir)]


def models_asked(run_dir: str | Path) -> list[str]:
    """Return the model of each request that was answered in a run, in order."""
    return [model for _, model in _requests(run_dir)]


def _requests(run_dir: str | Path) -> list[tuple[str, str]]:
    path = Path(run_dir) / "server/asked.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def jobs(run_dir: str | Path) -> dict[str, dict[str, str]]:
    """Return the jobs that were created in a run, by their id, in order."""
    found = tables(run_dir)["jobs"].items()
    return dict(sorted(found, key=lambda item: item[1]["number"]))


def training_file(run_dir: str | Path, job_id: str) -> list[dict[str, Any]]:
    """Return the lines that a job was trained on."""
    lines = (Path(run_dir) / f"server/{job_id}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def tables(run_dir: str | Path) -> Any:
    """Return the models and jobs of a run."""
    path = Path(run_dir) / "server/tables.json"
    return json.loads(path.read_text()) if path.exists() else {"models": {}, "jobs": {}}
