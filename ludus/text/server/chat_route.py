"""The route of chat completions, without a framework: training makes nearly all its requests there."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from ludus.core.errors import LudusError
from ludus.text.sampling.request import Sample
from ludus.text.server.bridge import Bridge
from ludus.text.server.chat_answer import DONE, PendingChat, asked, whole
from ludus.text.server.chat_request import ChatParameters, parse_chat
from ludus.text.server.chat_stream import ChatStream
from ludus.text.server.engine import TextEngine, most_tokens
from ludus.text.server.errors import ApiError
from ludus.text.server.http import (
    EVENTS,
    JSON,
    Disconnected,
    Headers,
    Receive,
    Send,
    read_body,
    send_answer,
)
from ludus.text.server.loaded_models import LoadedModel
from ludus.text.server.rate_limits import RateLimits
from ludus.text.server.settings import ServerSettings

PATH = "/v1/chat/completions"


class ChatRoute:
    """Answers POST /v1/chat/completions."""

    def __init__(self, engine: TextEngine, settings: ServerSettings) -> None:
        self._engine = engine
        self._settings = settings
        self._limits = RateLimits(
            requests_per_minute=settings.requests_per_minute,
            tokens_per_minute=settings.tokens_per_minute,
        )
        self._num_pending = 0
        self._bridge: Bridge | None = None

    async def __call__(
        self, receive: Receive, send: Send, headers: Headers, found: Mapping[bytes, bytes]
    ) -> None:
        """Answer a request, whose headers are `found`, with these; errors before the answer are raised."""
        body = await read_body(receive, found, self._settings.max_chat_bytes)
        chat = parse_chat(body)
        if self._num_pending >= self._settings.max_pending:
            raise ApiError(
                429,
                f"{self._num_pending} requests are in progress already; ask for fewer at a time.",
                code="too_many_requests",
                type="requests",
                headers={"retry-after": "1"},
            )
        self._num_pending += 1
        model = None
        try:
            model = await self._acquire(chat.model)
            await self._answer(chat, model, receive, send, headers)
        finally:
            self._num_pending -= 1
            if model is not None:
                self._engine.models.release(model)

    async def _acquire(self, name: str) -> LoadedModel:
        model = self._engine.models.acquire_loaded(name)
        if model is None:
            loop = asyncio.get_running_loop()
            model = await loop.run_in_executor(None, self._engine.models.acquire, name)
        return model

    async def _answer(
        self,
        chat: ChatParameters,
        model: LoadedModel,
        receive: Receive,
        send: Send,
        headers: Headers,
    ) -> None:
        prompt = self._engine.prompt(chat, model)
        most = len(prompt) + chat.n * most_tokens(chat, model, prompt)
        self._limits.take(most)
        request = asked(chat, model, prompt)
        if self._bridge is None:
            self._bridge = Bridge(asyncio.get_running_loop())
        try:
            if chat.stream:
                samples = await self._stream(request, receive, send, headers)
            else:
                samples = await self._sampled(request, receive)
                used = sum(len(sample.tokens) for sample in samples)
                self._limits.give_back(most - len(prompt) - used)
                most = 0
                body = whole(request, samples)
                await send_answer(send, 200, [JSON, *headers, *self._limit_headers()], body)
        finally:
            if most:
                self._limits.give_back(most)

    async def _sampled(self, request: PendingChat, receive: Receive) -> Sequence[Sample]:
        assert self._bridge is not None
        waiting = self._bridge.wrap(
            self._engine.submit(request.chat, request.model, request.prompt)
        )
        # It returns when the client has gone, or when the answer has been sent.
        watch = asyncio.ensure_future(receive())
        watch.add_done_callback(lambda done: waiting.cancel())
        try:
            return await waiting
        except asyncio.CancelledError:
            if watch.done():
                raise Disconnected from None
            raise

    async def _stream(
        self, request: PendingChat, receive: Receive, send: Send, headers: Headers
    ) -> Sequence[Sample]:
        assert self._bridge is not None
        stream = ChatStream(request, self._bridge)
        waiting = self._bridge.wrap(
            self._engine.submit(request.chat, request.model, request.prompt, stream.on_token)
        )
        stream.end_with(waiting)
        watch = asyncio.ensure_future(receive())
        watch.add_done_callback(lambda done: waiting.cancel())
        started = [EVENTS, (b"cache-control", b"no-cache"), *headers, *self._limit_headers()]
        await send({"type": "http.response.start", "status": 200, "headers": started})
        async for piece in stream.events():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        if waiting.cancelled():
            raise Disconnected
        try:
            samples = waiting.result()
        except LudusError as error:
            await send(
                {"type": "http.response.body", "body": stream.error(error), "more_body": False}
            )
            return ()
        await send({"type": "http.response.body", "body": DONE, "more_body": False})
        return samples

    def _limit_headers(self) -> Headers:
        return [(name.encode(), value.encode()) for name, value in self._limits.headers().items()]
