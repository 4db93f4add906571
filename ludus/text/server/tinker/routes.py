"""The HTTP routes of Tinker's API, below /api/v1, for an ASGI application of Starlette or FastAPI."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ludus.core.errors import LudusError
from ludus.text.server.tinker import requests
from ludus.text.server.tinker.outcomes import ForwardOutput, Outcome, SampleOutput
from ludus.text.server.tinker.proto import (
    CONTENT_TYPE,
    read_forward_backward,
    write_forward_output,
    write_samples,
)
from ludus.text.server.tinker.requests import RequestBody, RequestRefused, read_body
from ludus.text.server.tinker.service import TinkerService

B = TypeVar("B", bound=RequestBody)
Answer = dict[str, Any]
Handler = Callable[[Request], Awaitable[Response]]

MAX_BODY = 64 << 20
_PATIENCE = 20.0
"""The seconds that a question for an outcome waits before it is answered with try_again."""
_CLIENT_CONFIG = {
    "pjwt_auth_enabled": False,
    "credential_default_source": "api_key",
    "parallel_fwdbwd_chunks": True,
    "proto_compress_fwdbwd": False,
    "sample_use_retrieve_futures": False,
    "sample_join_sampling_session": False,
    "custom_loss_server_side": False,
}
"""What the SDK asks of a server: no tokens exchanged, no compression, outcomes asked for one by one."""


def make_application(service: TinkerService, token: str) -> Starlette:
    """Return the ASGI application; each request must carry the token as X-API-Key or bearer token."""
    return Starlette(routes=_table(service, token))


def _table(service: TinkerService, token: str) -> list[Route]:
    found = _Routes(service)
    table: list[tuple[str, str, Handler]] = [
        ("GET", "healthz", found.healthz),
        ("GET", "get_server_capabilities", found.capabilities),
        ("POST", "client/config", found.client_config),
        ("POST", "client/dynamic_config", found.dynamic_config),
        ("POST", "telemetry", found.telemetry),
        ("POST", "create_session", found.create_session),
        ("POST", "session_heartbeat", found.heartbeat),
        ("POST", "sessions/{session_id}/finish", found.finish),
        ("POST", "create_model", found.submitted(requests.CreateModel, service.create_model)),
        ("POST", "get_info", found.get_info),
        ("POST", "forward_backward", found.forward_backward),
        ("POST", "forward", found.forward),
        ("POST", "optim_step", found.submitted(requests.OptimStep, service.optim_step)),
        ("POST", "save_weights", found.submitted(requests.SaveWeights, service.save_weights)),
        (
            "POST",
            "save_weights_for_sampler",
            found.submitted(requests.SaveForSampler, service.save_weights_for_sampler),
        ),
        ("POST", "load_weights", found.submitted(requests.LoadWeights, service.load_weights)),
        ("POST", "weights_info", found.weights_info),
        ("POST", "create_sampling_session", found.create_sampling_session),
        ("GET", "samplers/{sampler_id}", found.sampler),
        ("POST", "asample", found.sample),
        ("POST", "retrieve_future", found.retrieve),
    ]
    made = [
        Route(f"/api/v1/{path}", _guarded(handler, token), methods=[method])
        for method, path, handler in table
    ]
    everything = ["GET", "POST", "PUT", "DELETE", "PATCH"]
    return [*made, Route("/api/v1/{path:path}", _guarded(found.unknown, token), methods=everything)]


def _guarded(handler: Handler, token: str) -> Handler:
    """Return a handler that checks the key first, and answers errors in one sentence."""

    async def answer(request: Request) -> Response:
        try:
            _check_key(request, token)
            return await handler(request)
        except RequestRefused as error:
            return JSONResponse({"detail": str(error)}, error.status)
        except LudusError as error:
            return JSONResponse({"detail": str(error)}, getattr(error, "status", 400))

    return answer


def _check_key(request: Request, token: str) -> None:
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ")
    given = request.headers.get("x-api-key") or bearer
    if not hmac.compare_digest(given.encode(), token.encode()):
        raise RequestRefused(
            "the API key is not the one of this server; it is in the file `token` of the server's directory"
            " (TINKER_API_KEY)",
            status=401,
        )


class _Routes:
    """The handlers."""

    def __init__(self, service: TinkerService) -> None:
        self._service = service

    async def healthz(self, request: Request) -> Response:
        """Say that the server is there."""
        return JSONResponse({"status": "ok"})

    async def capabilities(self, request: Request) -> Response:
        """List the base models."""
        found = await asyncio.to_thread(self._service.base_models)
        return JSONResponse({"supported_models": found})

    async def client_config(self, request: Request) -> Response:
        """Say what the SDK should do."""
        return JSONResponse(_CLIENT_CONFIG)

    async def dynamic_config(self, request: Request) -> Response:
        """Say what the SDK should do from now on."""
        return JSONResponse({"refresh_interval_sec": 3600, "sample_cancel_enabled": False})

    async def telemetry(self, request: Request) -> Response:
        """Drop what the SDK reports about its user: nothing of it is kept."""
        await _body_of(request)
        return JSONResponse({"status": "accepted"})

    async def create_session(self, request: Request) -> Response:
        """Open a session; a retry with the same idempotency key finds the first."""
        await _typed(request, requests.CreateSession)
        key = request.headers.get("x-idempotency-key")
        session_id = await asyncio.to_thread(self._service.registry.new_session, key)
        return JSONResponse({"type": "create_session", "session_id": session_id})

    async def heartbeat(self, request: Request) -> Response:
        """Acknowledge that a client lives; nothing here ends without it."""
        body = await _typed(request, requests.Heartbeat)
        self._service.registry.check_session(body.session_id)
        return JSONResponse({"type": "session_heartbeat"})

    async def finish(self, request: Request) -> Response:
        """Acknowledge that a client is done; its runs can still be read and trained."""
        self._service.registry.check_session(request.path_params["session_id"])
        return Response(status_code=204)

    def submitted(self, kind: type[B], act: Callable[[B], str]) -> Handler:
        """Return the handler of requests that are done later: it answers with the id of the request."""

        async def handler(request: Request) -> Response:
            body = await _typed(request, kind)
            return _promise(await asyncio.to_thread(act, body))

        return handler

    async def forward_backward(self, request: Request) -> Response:
        """Add the gradient of a batch."""
        return await self._forward(request, None)

    async def forward(self, request: Request) -> Response:
        """Compute log-probabilities, as clients ask that know no `forward_only`."""
        return await self._forward(request, True)

    async def _forward(self, request: Request, forward_only: bool | None) -> Response:
        data = await _body_of(request)
        is_proto = CONTENT_TYPE in request.headers.get("content-type", "")
        return _promise(await asyncio.to_thread(self._submit_batch, data, is_proto, forward_only))

    def _submit_batch(self, data: bytes, is_proto: bool, forward_only: bool | None) -> str:
        found = read_forward_backward(data) if is_proto else _json(data)
        if forward_only is not None and isinstance(found, dict):
            found = {**found, "forward_only": forward_only}
        return self._service.forward_backward(read_body(requests.ForwardBackward, found))

    async def get_info(self, request: Request) -> Response:
        """Describe a training run."""
        body = await _typed(request, requests.ModelRequest)
        return JSONResponse(await asyncio.to_thread(self._service.info, body.model_id))

    async def weights_info(self, request: Request) -> Response:
        """Describe saved weights."""
        body = await _typed(request, requests.WeightsInfo)
        return JSONResponse(await asyncio.to_thread(self._service.weights_info, body.tinker_path))

    async def create_sampling_session(self, request: Request) -> Response:
        """Open a sampling session."""
        body = await _typed(request, requests.CreateSamplingSession)
        session_id = await asyncio.to_thread(self._service.create_sampling_session, body)
        return JSONResponse({"type": "create_sampling_session", "sampling_session_id": session_id})

    async def sampler(self, request: Request) -> Response:
        """Describe a sampling session."""
        sampler_id = request.path_params["sampler_id"]
        record = self._service.registry.sampler(sampler_id)
        about = {"base_model": record.base_model, "model_path": record.model_path}
        return JSONResponse({"sampler_id": sampler_id, **about})

    async def sample(self, request: Request) -> Response:
        """Begin to sample."""
        body = await _typed(request, requests.SampleBody)
        request_id, sequence_ids = await asyncio.to_thread(self._service.sample, body)
        return JSONResponse({"request_id": request_id, "sample_sequence_ids": sequence_ids})

    async def retrieve(self, request: Request) -> Response:
        """Wait a while for the outcome of a request, and answer with it or with try_again."""
        body = await _typed(request, requests.RetrieveFuture)
        future = await asyncio.to_thread(self._service.outcome, body.request_id)
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait([waiting], timeout=_PATIENCE)
        if not done:
            again = {"type": "try_again", "request_id": body.request_id, "queue_state": "active"}
            return JSONResponse(again, 408)
        return _answer(waiting.result(), CONTENT_TYPE in request.headers.get("accept", ""))

    async def unknown(self, request: Request) -> Response:
        """Refuse a route that this server does not have."""
        raise RequestRefused(f"this server has no {request.method} {request.url.path}", status=404)


def _promise(request_id: str) -> Response:
    return JSONResponse({"request_id": request_id, "model_id": request_id.rpartition(":")[0]})


def _answer(outcome: Outcome, wants_proto: bool) -> Response:
    if wants_proto and isinstance(outcome, ForwardOutput):
        return Response(write_forward_output(outcome), media_type=CONTENT_TYPE)
    if wants_proto and isinstance(outcome, SampleOutput):
        return Response(write_samples(outcome), media_type=CONTENT_TYPE)
    return Response(orjson.dumps(outcome.to_json()), media_type="application/json")


async def _typed(request: Request, kind: type[B]) -> B:
    return read_body(kind, _json(await _body_of(request)))


async def _body_of(request: Request) -> bytes:
    found = bytearray()
    async for piece in request.stream():
        found += piece
        if len(found) > MAX_BODY:
            raise RequestRefused(
                f"the body has more than the {MAX_BODY >> 20} MiB it may have", status=413
            )
    return bytes(found)


def _json(data: bytes) -> object:
    try:
        found: object = orjson.loads(data)
    except ValueError:
        raise RequestRefused("the body of the request is not JSON") from None
    return found
