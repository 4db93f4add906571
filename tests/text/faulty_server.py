"""A server with faults: real sockets on loopback, the OpenAI API, and whatever a test wants to go wrong.

A fault is a name, or a function of it that a test hands over for each request, in order:

    before        the connection is reset before anything is done
    after         it is done, and the connection is reset without an answer
    cut           the answer ends in the middle of its JSON, its length being right
    short         the connection closes before the announced length
    drip          the answer comes a byte at a time, slower than any timeout
    hang          no answer ever comes; what was asked for is done
    garbage       200 with something that is no JSON
    empty         200 with no choices
    a status, as 429 or "500 retry-after=0.01", with headers
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self

CUTS = ("before", "after", "cut", "short", "garbage")
Fault = str | None


@dataclass
class Request:
    """A request as it came."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass
class FaultyServer:
    """Used in the event loop of a test: `async with FaultyServer() as server`."""

    fault: Callable[[Request], Fault] = lambda request: None
    """Says what goes wrong with a request."""
    delay: float = 0.0
    """Seconds before a chat is answered."""
    list_lag: int = 0
    """The number of lists in which a new job does not show yet."""
    ignores_filter: bool = False
    """Whether lists ignore the metadata that they are asked for."""
    page: int = 100
    key: str | None = None
    """The only key that is accepted; None: any."""
    steps_to_end: int = 0
    """How often a job is looked at before it has ended."""
    final_status: str = "succeeded"
    requests: list[Request] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    files: list[dict[str, Any]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=lambda: [{"id": "tiny"}])
    answer: Callable[[dict[str, Any], int], str] = lambda body, index: f"sample {index}"
    headers: Callable[[], Mapping[str, str]] = dict
    """Headers of every answer."""
    most_in_flight: int = 0
    in_flight: int = 0
    answered: int = 0
    """Chats that were computed, whether or not the answer arrived."""
    port: int = 0

    async def __aenter__(self) -> Self:
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = await asyncio.start_server(
            self._connection, "127.0.0.1", self.port, limit=1 << 26
        )
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def asked(self, path: str, method: str = "POST") -> list[Request]:
        return [one for one in self.requests if (one.method, one.path) == (method, f"/v1{path}")]

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._one(reader, writer):
                    pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {}
        for line in lines:
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        if headers.get("transfer-encoding") == "chunked":
            raw = await _chunked(reader)
        else:
            raw = await reader.readexactly(int(headers.get("content-length", "0")))
        parts = urllib.parse.urlsplit(target)
        is_json = headers.get("content-type") == "application/json"
        body = json.loads(raw) if is_json and raw else raw
        query = dict(urllib.parse.parse_qsl(parts.query))
        request = Request(method, parts.path, query, headers, body)
        self.requests.append(request)
        fault = self.fault(request)
        if fault == "before":
            writer.transport.abort()
            return False
        if fault is not None and fault.split(" ")[0].isdecimal():
            status, *more = fault.split(" ")
            extra = dict(one.split("=", 1) for one in more)
            error = {"error": {"message": f"fault {status}", "code": extra.pop("code", None)}}
            await _send(writer, int(status), error, extra)
            return True
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            status, answer = await self._answer(request)
        finally:
            self.in_flight -= 1
        return await self._deliver(writer, fault, status, answer)

    async def _deliver(
        self, writer: asyncio.StreamWriter, fault: Fault, status: int, answer: Any
    ) -> bool:
        if fault == "after":
            writer.transport.abort()
            return False
        if fault == "hang":
            await asyncio.sleep(3600)
        if fault == "empty":
            answer = {**answer, "choices": []}
        data = json.dumps(answer).encode()
        if fault == "garbage":
            data = b"<html>Bad gateway</html>"
        elif fault == "cut":
            data = data[: len(data) // 2]
        if fault == "short":
            writer.write(_head(status, len(data) + 10, {}) + data)
            await writer.drain()
            return False
        if fault == "drip":
            writer.write(_head(status, len(data), {}))
            for byte in data:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.2)
            return True
        writer.write(_head(status, len(data), self.headers()) + data)
        await writer.drain()
        return True

    async def _answer(self, request: Request) -> tuple[int, Any]:
        if self.key is not None and request.headers.get("authorization") != f"Bearer {self.key}":
            sent = request.headers.get("authorization", "")
            return 401, {"error": {"message": f"Incorrect API key: {sent}", "code": "invalid"}}
        path = request.path.removeprefix("/v1")
        if path == "/chat/completions":
            return 200, await self._chat(request.body)
        if path == "/models":
            return 200, {"data": self.models}
        if path == "/files":
            return 200, self._files(request)
        if path == "/fine_tuning/jobs":
            return 200, self._create(request.body) if request.method == "POST" else self._list(
                request
            )
        return self._job(path.removeprefix("/fine_tuning/jobs/"))

    async def _chat(self, body: dict[str, Any]) -> dict[str, Any]:
        if self.delay:
            await asyncio.sleep(self.delay)
        self.answered += 1
        choices = [
            {
                "index": index,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": self.answer(body, index)},
            }
            for index in range(body["n"])
        ]
        usage = {"prompt_tokens": 10, "completion_tokens": 3 * body["n"]}
        usage["total_tokens"] = sum(usage.values())
        return {"object": "chat.completion", "choices": choices, "usage": usage}

    def _files(self, request: Request) -> dict[str, Any]:
        if request.method == "GET":
            return {"data": self.files, "has_more": False}
        boundary = request.headers["content-type"].partition("; boundary=")[2].strip('"').encode()
        # A form whose header does not name its boundary cannot be read.
        assert boundary
        head, _, rest = request.body.partition(b'name="file"')[2].partition(b"\r\n\r\n")
        name = head.split(b'filename="')[1].split(b'"')[0].decode()
        content = rest.rpartition(b"\r\n--" + boundary + b"--")[0]
        file = {"id": f"file-{len(self.files)}", "filename": name, "bytes": len(content)}
        self.files.append(file)
        return file

    def _create(self, body: dict[str, Any]) -> dict[str, Any]:
        number = len(self.jobs)
        job = {
            "id": f"ftjob-{number}",
            "object": "fine_tuning.job",
            "status": "queued",
            "model": body["model"],
            "metadata": body.get("metadata"),
            "created_at": 1000 + number,
            "hidden_for": self.list_lag,
            "looks": 0,
        }
        self.jobs.append(job)
        return job

    def _list(self, request: Request) -> dict[str, Any]:
        shown = []
        for job in self.jobs:
            if job["hidden_for"] <= 0:
                shown.append(job)
            elif "after" not in request.query:
                job["hidden_for"] -= 1
        key = request.query.get("metadata[ludus_key]")
        if not self.ignores_filter:
            shown = [job for job in shown if (job["metadata"] or {}).get("ludus_key") == key]
        ids = [job["id"] for job in shown]
        start = ids.index(request.query["after"]) + 1 if "after" in request.query else 0
        rows = shown[start : start + self.page]
        return {"object": "list", "data": rows, "has_more": start + self.page < len(shown)}

    def _job(self, rest: str) -> tuple[int, Any]:
        job_id, _, action = rest.partition("/")
        found = [job for job in self.jobs if job["id"] == job_id]
        if not found:
            return 404, {"error": {"message": f"no job {job_id}", "code": "not_found"}}
        job = found[0]
        if action == "cancel":
            job["status"] = "cancelled"
        job["looks"] += 1
        if job["looks"] > self.steps_to_end and job["status"] in ("queued", "running"):
            job["status"] = self.final_status
            if self.final_status == "succeeded":
                job |= {"fine_tuned_model": f"ft:{job['model']}", "trained_tokens": 500}
            if self.final_status == "failed":
                job["error"] = {"code": "bad", "message": "line 3: no messages\nand more"}
        return 200, job


async def _chunked(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while size := int((await reader.readline()).strip(), 16):
        body += await reader.readexactly(size)
        await reader.readline()
    await reader.readline()
    return body


def _head(status: int, length: int, headers: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {length}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _send(
    writer: asyncio.StreamWriter, status: int, body: object, headers: Mapping[str, str]
) -> None:
    data = json.dumps(body).encode()
    writer.write(_head(status, len(data), headers) + data)
    await writer.drain()
