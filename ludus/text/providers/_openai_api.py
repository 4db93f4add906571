"""The OpenAI HTTP API as many servers speak it: models, chat completions, files and fine-tuning jobs."""

from __future__ import annotations

import hashlib
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ludus.text.chat import ChatAnswer, ChatChoice, ChatRequest, FinishReason, TokenLogprob
from ludus.text.client.failures import plain, unreadable
from ludus.text.client.http import HttpClient, url_problem
from ludus.text.client.limits import Limits
from ludus.text.client.secret import KeyConfig
from ludus.text.client.spending import prompt_bound
from ludus.text.jobs import KEY_NAME, Job, JobSpec, Status
from ludus.text.provider import ModelInfo, Provider, ProviderConfig, ProviderError

_REASONS: Mapping[str, FinishReason] = {
    "stop": "stop",
    "length": "length",
    "content_filter": "content_filter",
}
_STATUSES: Mapping[str, Status] = {
    "validating_files": "pending",
    "queued": "pending",
    "running": "running",
    "pausing": "paused",
    "paused": "paused",
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "cancelled",
}
_MOST_PAGES = 1000
_PAGE = "100"
_MOST_SUFFIX = 64
UNTOLD = -1
"""The number of tokens of a sample where the provider does not tell it."""


class ServerConfig(ProviderConfig):
    """The keys of providers at an address."""

    url: str
    """The base URL, up to and with /v1."""
    key: KeyConfig | None
    """Where the API key is read; null: the server asks for none."""

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the address."""
        if problem := url_problem(self.url):
            yield problem


class OpenaiApi(Provider):
    """A provider that speaks the OpenAI API; each kind says which parts of it."""

    completion_limit = "max_tokens"
    """The name under which `max_tokens` is sent."""
    label = "the server"
    """How messages call it."""

    async def open(self) -> None:
        """Read the key, and prepare to connect."""
        config = self.config
        assert isinstance(config, ServerConfig)
        key = None if config.key is None else config.key.read()
        self.http = HttpClient(config.url, key, name=self.label)
        await self.http.open()

    async def close(self) -> None:
        """Close all connections; without a key none was opened."""
        if "http" in vars(self):
            await self.http.close()

    @property
    def limits(self) -> Limits | None:
        """Return the allowances in the last response that told any."""
        return self.http.limits

    async def models(self) -> Sequence[ModelInfo]:
        """Return the models there are."""
        rows = _rows(await self.http.get("/models"), name=self.label)
        return [
            ModelInfo(
                str(row["id"]),
                shutdown_date=_text(row.get("shutdown_date")),
                context=_number(row.get("context_length") or row.get("max_model_len")),
            )
            for row in rows
        ]

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        """Return samples of the next message."""
        found = await self.http.post("/chat/completions", self.chat_body(request))
        return read_answer(found, request, name=self.label)

    def chat_body(self, request: ChatRequest) -> dict[str, Any]:
        """Return the body of a chat completion."""
        body: dict[str, Any] = {
            "model": request.model,
            "messages": [{"role": role, "content": text} for role, text in request.messages],
            "n": request.n,
            # Seeds are 63 bits here, and servers take 63 bits at most.
            "seed": request.seed,
            self.completion_limit: request.max_tokens,
            "temperature": request.temperature,
            "top_p": request.top_p,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        if request.logprobs:
            body["logprobs"] = True
        return body

    async def create_job(self, spec: JobSpec) -> Job:
        """Upload the training file unless it is there, and create a job with the key in its metadata."""
        file_id = await self.uploaded(spec.lines)
        return self.read_job(await self.http.post("/fine_tuning/jobs", job_body(spec, file_id)))

    async def uploaded(self, lines: bytes) -> str:
        """Return the id of the file with this content, uploading it if there is none."""
        name = f"{hashlib.sha256(lines).hexdigest()}.jsonl"
        try:
            async for row in self._pages("/files", {"purpose": "fine-tune"}):
                is_same = row.get("filename") == name and row.get("bytes") == len(lines)
                if is_same and row.get("status") != "error":
                    return str(row["id"])
            fields = {"purpose": "fine-tune"}
            found = await self.http.upload("/files", fields, file_name=name, content=lines)
            return str(found["id"])
        except (KeyError, TypeError):
            raise unreadable("an uploaded file without an id", name=self.label) from None
        except ProviderError as error:
            # No job was asked for yet, whatever became of the file.
            error.is_known = True
            raise

    async def find_jobs(self, key: str) -> list[Job]:
        """Return the jobs with this key, the oldest first; the filter of the list is not relied on."""
        query = {f"metadata[{KEY_NAME}]": key}
        jobs = [self.read_job(row) async for row in self._pages("/fine_tuning/jobs", query)]
        own = [job for job in jobs if job.key == key]
        return sorted(own, key=lambda job: (job.created_at, job.id))

    async def job(self, job_id: str) -> Job:
        """Return how a job stands."""
        return self.read_job(await self.http.get(self.job_path(job_id)))

    async def cancel_job(self, job_id: str) -> Job:
        """Cancel a job."""
        return self.read_job(await self.http.post(f"{self.job_path(job_id)}/cancel", {}))

    def job_path(self, job_id: str) -> str:
        """Return the path of a job."""
        return f"/fine_tuning/jobs/{urllib.parse.quote(job_id, safe='')}"

    def read_job(self, found: object) -> Job:
        """Return a job object."""
        row = found if isinstance(found, dict) else {}
        if not isinstance(row.get("id"), str):
            raise unreadable("a job without an id", name=self.label)
        metadata = row.get("metadata")
        key = metadata.get(KEY_NAME) if isinstance(metadata, dict) else None
        error = row.get("error")
        message = _text(error.get("message")) if isinstance(error, dict) else _text(error)
        return Job(
            id=row["id"],
            status=_STATUSES.get(str(row.get("status")), "pending"),
            model=str(row.get("model", "")),
            key=_text(key),
            fine_tuned_model=_text(row.get("fine_tuned_model")),
            error=None if message is None else plain(message),
            trained_tokens=_number(row.get("trained_tokens")),
            created_at=_number(row.get("created_at")) or 0,
            more={"status": plain(str(row.get("status")))},
        )

    async def _pages(self, path: str, query: Mapping[str, str]) -> Any:
        """Yield the rows of a list, page by page."""
        after: str | None = None
        for _ in range(_MOST_PAGES):
            params = {**query, "limit": _PAGE, **({} if after is None else {"after": after})}
            page = await self.http.get(path, params)
            rows = _rows(page, name=self.label)
            for row in rows:
                yield row
            last = str(rows[-1]["id"]) if rows else None
            # A server that ignores `after` would send the same page for ever.
            if not rows or page.get("has_more") is not True or last == after:
                return
            after = last
        raise unreadable(f"a list of more than {_MOST_PAGES} pages", name=self.label)


def job_body(spec: JobSpec, file_id: str) -> dict[str, Any]:
    """Return the body that creates a job."""
    method: dict[str, Any] = {"type": spec.method}
    if spec.hyperparameters:
        method[spec.method] = {"hyperparameters": dict(spec.hyperparameters)}
    return {
        "model": spec.model,
        "training_file": file_id,
        "method": method,
        # Servers take 31 bits here.
        "seed": spec.seed % 2**31,
        "suffix": spec.suffix[:_MOST_SUFFIX],
        "metadata": {KEY_NAME: spec.key},
    }


def read_answer(found: object, request: ChatRequest, *, name: str) -> ChatAnswer:
    """Return the samples of a chat completion; raise ProviderError unless there are as many as asked for."""
    rows = found.get("choices") if isinstance(found, dict) else None
    if not isinstance(rows, list) or len(rows) != request.n:
        number = len(rows) if isinstance(rows, list) else "no"
        raise unreadable(f"{number} choices in place of {request.n}", name=name)
    usage = found.get("usage") if isinstance(found, dict) else None
    usage = usage if isinstance(usage, dict) else {}
    # An answer that does not say what it took counts as all it may have taken.
    prompt, completion = (_number(usage.get(f"{one}_tokens")) for one in ("prompt", "completion"))
    completion = request.n * request.max_tokens if completion is None else completion
    details = usage.get("prompt_tokens_details")
    cached = _number(details.get("cached_tokens")) if isinstance(details, dict) else None
    only = completion if request.n == 1 else UNTOLD
    try:
        ordered = sorted(rows, key=lambda row: row.get("index", 0))
        choices = tuple(_choice(row, only) for row in ordered)
        if any(one.num_tokens == UNTOLD for one in choices):
            choices = _shared(choices, completion)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise unreadable("a choice without a message", name=name) from None
    return ChatAnswer(
        choices,
        prompt_bound(request.messages) if prompt is None else prompt,
        completion,
        cached or 0,
    )


def _shared(choices: tuple[ChatChoice, ...], total: int) -> tuple[ChatChoice, ...]:
    """Return choices with equal parts of the tokens that are left, where the server tells only their sum."""
    told = sum(one.num_tokens for one in choices if one.num_tokens != UNTOLD)
    untold = [place for place, one in enumerate(choices) if one.num_tokens == UNTOLD]
    each, rest = divmod(max(total - told, 0), len(untold))
    parts = {place: each + (number < rest) for number, place in enumerate(untold)}
    return tuple(
        replace(one, num_tokens=parts.get(place, one.num_tokens))
        for place, one in enumerate(choices)
    )


def _choice(row: Mapping[str, Any], num_tokens: int) -> ChatChoice:
    message = row["message"]
    text = message.get("content")
    logprobs = row.get("logprobs")
    content = logprobs.get("content") if isinstance(logprobs, dict) else None
    # A field of vLLM and of ludus's own server.
    ids = row.get("token_ids")
    ids = ids if isinstance(ids, list) else None
    tokens = None
    if isinstance(content, list):
        known = ids if ids is not None and len(ids) == len(content) else [UNTOLD] * len(content)
        pairs = zip(known, content, strict=True)
        tokens = tuple(TokenLogprob(int(token), float(one["logprob"])) for token, one in pairs)
    sampled = ids if ids is not None else tokens
    told = len(sampled) if sampled is not None and num_tokens == UNTOLD else num_tokens
    text = text if isinstance(text, str) else str(message.get("refusal") or "")
    return ChatChoice(text, _REASONS.get(str(row.get("finish_reason")), "stop"), told, tokens)


def _rows(page: object, *, name: str) -> list[dict[str, Any]]:
    rows = page.get("data") if isinstance(page, dict) else None
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("id"), str) for row in rows
    ):
        raise unreadable("a list without its rows", name=name)
    return rows


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: object) -> int | None:
    is_number = isinstance(value, int) and not isinstance(value, bool) and value >= 0
    return value if is_number else None  # type: ignore[return-value]
