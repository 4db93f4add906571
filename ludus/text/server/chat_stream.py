"""A streamed answer: the tokens of a request's samples as server-sent events, as they are sampled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import orjson

from ludus.core.errors import LudusError
from ludus.text.sampling.request import Sample
from ludus.text.server.bridge import Bridge
from ludus.text.server.chat_answer import Asked, GrowingText, chunk, token_logprobs
from ludus.text.server.errors import ApiError, server_error


class ChatStream:
    """Turns tokens into events, several at a time if the client is slower than the model."""

    def __init__(self, request: Asked, bridge: Bridge) -> None:
        self._request = request
        self._bridge = bridge
        chat = request.chat
        self._texts = [GrowingText(request.model.tokenizer, chat.stop) for _ in range(chat.n)]
        self._tokens: list[tuple[int, int]] = []
        self._news = asyncio.Event()
        self._waiting: asyncio.Future[list[Sample]] | None = None

    def on_token(self, index: int, token: int) -> None:
        """Take a token of a sample; called in the thread of the engine."""
        self._bridge.call(lambda: self._put(index, token))

    def _put(self, index: int, token: int) -> None:
        self._tokens.append((index, token))
        self._news.set()

    def end_with(self, waiting: asyncio.Future[list[Sample]]) -> None:
        """End when this future is done."""
        self._waiting = waiting
        waiting.add_done_callback(lambda done: self._news.set())

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the events, up to the usage."""
        assert self._waiting is not None
        first = {"role": "assistant", "content": "", "refusal": None}
        yield b"".join(
            chunk(self._request, index=index, delta=first) for index in range(len(self._texts))
        )
        while not self._waiting.done():
            await self._news.wait()
            self._news.clear()
            if piece := self._grown():
                yield piece
        if not self._waiting.cancelled() and self._waiting.exception() is None:
            yield self._ending(self._waiting.result())

    def _grown(self) -> bytes:
        tokens, self._tokens = self._tokens, []
        grown: dict[int, str] = {}
        for index, token in tokens:
            grown[index] = grown.get(index, "") + self._texts[index].add(token)
        return b"".join(
            chunk(self._request, index=index, delta={"content": text})
            for index, text in grown.items()
            if text
        )

    def _ending(self, samples: Sequence[Sample]) -> bytes:
        """Return the rest of each sample, which carries its log-probabilities, its end, and the usage."""
        request, events = self._request, []
        chat, tokenizer = request.chat, request.model.tokenizer
        for index, sample in enumerate(samples):
            rest = self._texts[index].rest(sample.text)
            logprobs = None
            if chat.logprobs:
                logprobs = token_logprobs(tokenizer, sample, 0, len(sample.tokens))
            token_ids = sample.tokens if chat.return_token_ids else None
            if rest or chat.logprobs or chat.return_token_ids:
                event = chunk(
                    request, index=index, delta={"content": rest}, logprobs=logprobs, token_ids=token_ids
                )
                events.append(event)
            events.append(chunk(request, index=index, finish_reason=sample.finish_reason))
        if chat.includes_usage:
            events.append(chunk(request, samples=samples))
        return b"".join(events)

    def error(self, error: LudusError) -> bytes:
        """Return the event of an error that came after the stream began."""
        known = error if isinstance(error, ApiError) else server_error(str(error))
        return b"data: " + orjson.dumps(known.body()) + b"\n\n"
