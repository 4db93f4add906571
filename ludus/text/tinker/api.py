"""The requests of Tinker's API that ludus sends, and the answers it reads.

Bodies, routes and the polling of outcomes follow the types of the SDK 0.38, whose JSON clients send the same.
Only protobuf is left out: the SDK 0.38 itself sends forward_backward and reads samples as protobuf. Whether
the hosted service still takes JSON there could not be tried.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

from ludus.text.chat import ChatRequest
from ludus.text.client.http import HttpClient
from ludus.text.client.secret import Secret
from ludus.text.provider import ProviderError

T = TypeVar("T")
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 5.0


class ApiSample(NamedTuple):
    """One sample."""

    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    stop_reason: Literal["stop", "length"]


class _Http(HttpClient):
    """Sends the key as this API wants it."""

    async def open(self) -> None:
        await super().open()
        assert self._session is not None
        if self._key is not None:
            self._session.headers.popall("Authorization", None)
            self._session.headers["X-API-Key"] = self._key.reveal()


class TinkerApi:
    """One server. Requests that number themselves are sent again while the server does not answer."""

    def __init__(self, url: str, key: Secret | None, *, patience_seconds: float) -> None:
        base = url.rstrip("/").removesuffix("/api/v1")
        self._http = _Http(f"{base}/api/v1", key, name="the Tinker server")
        self._patience = patience_seconds

    async def open(self) -> None:
        """Prepare to connect."""
        await self._http.open()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.close()

    async def capabilities(self) -> list[tuple[str, int | None]]:
        """Return the base models, with their contexts where the server says."""
        return [(one["model_name"], one.get("max_context_length")) for one in await self._models()]

    async def _models(self) -> list[dict[str, Any]]:
        found = await self._repeated(lambda: self._http.get("/get_server_capabilities"))
        return [one for one in found["supported_models"] if one.get("model_name")]

    async def tokenizer_directory(self, base_model: str) -> str:
        """Return where the server has the tokenizer of a model, which ludus's server says."""
        for one in await self._models():
            if one["model_name"] == base_model and one.get("tokenizer_id"):
                return str(one["tokenizer_id"])
        raise ProviderError(
            f"the Tinker server names no tokenizer of {base_model}; set 'tokenizer' of the provider to a"
            " directory that holds it"
        )

    async def create_session(self) -> str:
        """Open a session; one more than needed does no harm."""
        body = {"type": "create_session", "tags": [], "user_metadata": {}, "sdk_version": "ludus"}
        found = await self._repeated(lambda: self._http.post("/create_session", body))
        return str(found["session_id"])

    async def create_model(
        self, session_id: str, number: int, base_model: str, *, lora_rank: int | None, seed: int
    ) -> str:
        """Create a model to train, and return its id."""
        body: dict[str, Any] = {
            "type": "create_model",
            "session_id": session_id,
            "model_seq_id": number,
            "base_model": base_model,
        }
        if lora_rank is not None:
            body["lora_config"] = {"rank": lora_rank, "seed": seed}
        found = await self.outcome_of("/create_model", body)
        return str(found["model_id"])

    async def create_sampling_session(
        self, session_id: str, number: int, model: str
    ) -> tuple[str, str]:
        """Open a sampling session on saved weights or a base model; return its id and the base model."""
        is_path = model.startswith("tinker://")
        body = {
            "type": "create_sampling_session",
            "session_id": session_id,
            "sampling_session_seq_id": number,
            "model_path" if is_path else "base_model": model,
        }
        found = await self._repeated(lambda: self._http.post("/create_sampling_session", body))
        sampler_id = str(found["sampling_session_id"])
        if not is_path:
            return sampler_id, model
        about = await self._repeated(lambda: self._http.get(f"/samplers/{sampler_id}"))
        return sampler_id, str(about["base_model"])

    async def sample(
        self, session_id: str, number: int, prompt: Sequence[int], request: ChatRequest
    ) -> list[ApiSample]:
        """Return samples that continue a prompt: one try, as the caller repeats it under another number."""
        params: dict[str, Any] = {
            "max_tokens": request.max_tokens,
            "seed": request.seed,
            "temperature": request.temperature,
            "top_p": request.top_p,
        }
        if request.stop:
            params["stop"] = list(request.stop)
        body = {
            "type": "sample",
            "sampling_session_id": session_id,
            "seq_id": number,
            "num_samples": request.n,
            "prompt": _input(prompt),
            "sampling_params": params,
        }
        promise = await self._http.post("/asample", body)
        try:
            found = await self._outcome(str(promise["request_id"]))
        except ProviderError as error:
            # A server that was restarted does not know the request: it is asked anew by the caller.
            error.is_transient = error.is_transient or error.status == 410
            raise
        return [
            ApiSample(tuple(one["tokens"]), tuple(one.get("logprobs") or ()), one["stop_reason"])
            for one in found["sequences"]
        ]

    async def outcome_of(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the outcome of a request that its numbers make safe to send again."""
        promise = await self._repeated(lambda: self._http.post(path, body))
        request_id = str(promise["request_id"])
        return await self._repeated(lambda: self._outcome(request_id))

    async def _outcome(self, request_id: str) -> dict[str, Any]:
        """Ask for an outcome until there is one."""
        while True:
            try:
                asked = {"request_id": request_id, "allow_metadata_only": False}
                found: dict[str, Any] = await self._http.post("/retrieve_future", asked)
            except ProviderError as error:
                if error.status == 408:
                    continue
                raise
            if found.get("type") == "try_again":
                continue
            if "error" in found:
                raise ProviderError(f"the Tinker server: {found['error']}", code="request_failed")
            return found

    async def _repeated(self, once: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a request, sent again for a while when a try fails for a passing reason."""
        until = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return await once()
            except ProviderError as error:
                delay = max(pause, error.retry_after or 0.0)
                if not error.is_transient or time.monotonic() + delay > until:
                    raise
            await asyncio.sleep(delay)
            pause = min(2 * pause, _LONGEST_PAUSE)


def _input(tokens: Sequence[int]) -> dict[str, Any]:
    return {"chunks": [{"type": "encoded_text", "tokens": list(tokens)}]}


def datum_json(
    tokens: Sequence[int], targets: Sequence[int], inputs: Mapping[str, Sequence[float]]
) -> dict[str, Any]:
    """Return a datum as the API writes it in JSON."""
    tensors = {"target_tokens": _tensor(targets, "int64")}
    tensors |= {name: _tensor(values, "float32") for name, values in inputs.items()}
    return {"model_input": _input(tokens), "loss_fn_inputs": tensors}


def _tensor(values: Sequence[float], dtype: str) -> dict[str, Any]:
    return {"data": list(values), "dtype": dtype, "shape": [len(values)]}
