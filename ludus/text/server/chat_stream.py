"""A streamed answer: the tokens of a request's samples as server-sent events, as they are sampled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import orjson

from ludus.core.errors import LudusError
from ludus.text.sampling.request import Piece, Sample
from ludus.text.server.bridge import Bridge
from ludus.text.server.chat_answer import PendingChat, chunk, token_logprobs
from ludus.text.server.errors import ApiError, server_error


class ChatStream:
    """Turns tokens into events, several at a time if the client is slower than the model."""

    def __init__(self, request: PendingChat, bridge: Bridge) -> None:
        self._request = request
        self._bridge = bridge
        self._pieces: list[tuple[int, Piece]] = []
        self._news = asyncio.Event()
        self._waiting: asyncio.Future[list[Sample]] | None = None

    def on_token(self, index: int, piece: Piece) -> None:
        """Take a token of a sample; called in the thread of the engine."""
        self._bridge.call(lambda: self._put(index, piece))

    def _put(self, index: int, piece: Piece) -> None:
        self._pieces.append((index, piece))
        self._news.set()

    def end_with(self, waiting: asyncio.Future[list[Sample]]) -> None:
        """End when this future is done."""
        self._waiting = waiting
        waiting.add_done_callback(lambda done: self._news.set())

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events, up to the usage."""
        request, waiting = self._request, self._waiting
        assert waiting is not None
        first = {"role": "assistant", "content": "", "refusal": None}
        yield b"".join(chunk(request, index=index, delta=first) for index in range(request.chat.n))
        while not waiting.done():
            await self._news.wait()
            self._news.clear()
            if grown := self._grown():
                yield grown
        if not waiting.cancelled() and waiting.exception() is None:
            if grown := self._grown():
                yield grown
            if request.chat.includes_usage:
                yield chunk(request, samples=waiting.result())

    def _grown(self) -> bytes:
        """Return the events of the tokens since the last call, one for each sample that has grown."""
        pieces, self._pieces = self._pieces, []
        grown: dict[int, list[Piece]] = {}
        for index, piece in pieces:
            grown.setdefault(index, []).append(piece)
        return b"".join(self._event(index, news) for index, news in grown.items())

    def _event(self, index: int, pieces: list[Piece]) -> bytes:
        chat, tokenizer = self._request.chat, self._request.model.tokenizer
        text = "".join(piece.text for piece in pieces)
        logprobs: dict[str, Any] | None = None
        if chat.logprobs:
            rows = ((piece.token, piece.logprob or 0.0, piece.top) for piece in pieces)
            logprobs = token_logprobs(tokenizer, rows)
        token_ids = [piece.token for piece in pieces] if chat.return_token_ids else None
        event = b""
        if text or logprobs or token_ids:
            event = chunk(
                self._request,
                index=index,
                delta={"content": text},
                logprobs=logprobs,
                token_ids=token_ids,
            )
        reason = pieces[-1].finish_reason
        if reason is not None:
            event += chunk(self._request, index=index, finish_reason=reason)
        return event

    def error(self, error: LudusError) -> bytes:
        """Return the event of an error that came after the stream began."""
        known = error if isinstance(error, ApiError) else server_error(str(error))
        return b"data: " + orjson.dumps(known.body()) + b"\n\n"
