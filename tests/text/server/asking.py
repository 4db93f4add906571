"""What tests ask of a server, and of an engine."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from typing import Any

import httpx

from ludus.text.server.engine import TextEngine
from ludus.text.server.job_record import JobRecord, JobRequest, ServerStatus
from ludus.text.server.start import ServerHandle


def asked(
    server: ServerHandle,
    method: str,
    path: str,
    *,
    headers: dict[str, str] | None = None,
    **more: Any,
) -> httpx.Response:
    """Return the answer to a request with the token, unless the headers say otherwise."""
    given = {"authorization": f"Bearer {server.token}"} | (headers or {})
    given = {name: value for name, value in given.items() if value}
    return httpx.request(method, server.url + path, headers=given, timeout=60, **more)


def error_of(response: httpx.Response) -> dict[str, Any]:
    """Return the error of an answer, which has OpenAI's form."""
    assert response.headers["content-type"] == "application/json"
    assert response.headers["x-request-id"]
    body: dict[str, dict[str, Any]] = response.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    return body["error"]


def lines(num_examples: int = 24, *, answer: str = "aba") -> bytes:
    """Return a training file."""
    found = []
    for number in range(num_examples):
        messages = [
            {"role": "user", "content": f"word {number}"},
            {"role": "assistant", "content": answer[: 1 + number % len(answer)]},
        ]
        found.append(json.dumps({"messages": messages}))
    return "\n".join(found).encode() + b"\n"


def created(
    engine: TextEngine,
    *,
    data: bytes | None = None,
    key: str | None = None,
    model: str = "tiny",
    seed: int | None = 5,
    n_epochs: int = 2,
    batch_size: int = 4,
    idempotency_key: str | None = None,
) -> JobRecord:
    """Create a job of twelve steps, unless told otherwise."""
    file = engine.files.add(
        io.BytesIO(lines() if data is None else data), filename="a.jsonl", purpose="fine-tune",
        idempotency_key=f"file of {key or idempotency_key}" if key or idempotency_key else None,
    )  # fmt: skip
    request = JobRequest(
        model=model,
        training_file=file.id,
        validation_file=None,
        method="supervised",
        hyperparameters={"n_epochs": n_epochs, "batch_size": batch_size},
        suffix="test",
        seed=seed,
        metadata={} if key is None else {"ludus_key": key},
    )
    return engine.jobs.create(request, idempotency_key=idempotency_key)


def when(engine: TextEngine, job: JobRecord, *, not_any: Sequence[ServerStatus] = ()) -> JobRecord:
    """Return the job once its status is none of these; without any, once it has ended."""
    store = engine.jobs.store
    while True:
        found = store.get(job.id)
        if found.status not in not_any if not_any else found.has_ended:
            return found
        store.when_changed(job.id, found.status).result(timeout=120)


def tuned_bytes(engine: TextEngine, job: JobRecord) -> bytes:
    """Return the weights of the model that a job has made."""
    return (engine.library.directory(job.tuned_model) / "model.safetensors").read_bytes()
