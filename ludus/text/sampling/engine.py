"""SamplingEngine: samples many requests at once from a model, in a thread or in the caller's."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

from ludus.core.errors import LudusError, is_out_of_memory
from ludus.text.models.language_model import LanguageModel
from ludus.text.sampling.batch import RowBatch
from ludus.text.sampling.choose_decoder import Batching, decoder_of
from ludus.text.sampling.decoder import Decoder
from ludus.text.sampling.invariance import check_invariance, sample_all
from ludus.text.sampling.request import OnToken, Sample, SampleRequest
from ludus.text.sampling.texts import Vocabulary
from ludus.text.sampling.ticket import Ticket

_CACHE_BYTES = 2 << 30
T = TypeVar("T")


@dataclass(frozen=True)
class _Job:
    """Work for the thread that must not fall within a request: it waits until no row is left."""

    do: Callable[[], None]


class SamplingEngine:
    """Samples of a request depend on model, prompt, seed and parameters alone, at any load.

    `sample` works in the caller's thread. The first `submit` starts a thread that batches continuously until
    `close`; then `sample` goes through it too.
    """

    def __init__(
        self,
        model: LanguageModel,
        *,
        max_rows: int = 512,
        batching: Batching = "shared",
        cache_bytes: int = _CACHE_BYTES,
    ) -> None:
        """The weights are copied: an engine follows later training only through `swap`."""
        self._max_rows, self._batching, self._cache_bytes = max_rows, batching, cache_bytes
        self._inbox: queue.SimpleQueue[Ticket | _Job | None] = queue.SimpleQueue()
        self._guard = threading.RLock()
        self._thread: threading.Thread | None = None
        self._is_closed = False
        self.model = model
        self._decoder, self._vocabulary = self._made(model)
        self._batch = self._empty_batch()

    def __enter__(self) -> SamplingEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def submit(
        self, request: SampleRequest, on_token: OnToken | None = None
    ) -> Future[list[Sample]]:
        """Return a future of the request's samples; cancelling it ends the sampling.

        `on_token` is called from the engine's thread with each token as it is sampled. Raises RequestError
        at once for a request that cannot be sampled.
        """
        request.check(len(self._vocabulary.bytes), self.model.context)
        future: Future[list[Sample]] = Future()

        def done(samples: list[Sample]) -> None:
            if future.set_running_or_notify_cancel():
                future.set_result(samples)

        def fail(error: BaseException) -> None:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)

        ticket = Ticket(request, done, fail, on_token)
        future.add_done_callback(lambda ended: self._cancel(ticket) if ended.cancelled() else None)
        self._send(ticket)
        return future

    def sample(self, requests: Sequence[SampleRequest]) -> list[list[Sample]]:
        """Return the samples of each request."""
        for request in requests:
            request.check(len(self._vocabulary.bytes), self.model.context)
        with self._guard:
            self._check_open()
            if self._thread is None:
                batch = self._batch
                try:
                    return sample_all(batch, list(requests))
                except BaseException as error:
                    self._batch = self._empty_batch()
                    if isinstance(error, Exception):
                        raise _readable(error) from error
                    raise
        futures = [self.submit(request) for request in requests]
        return [future.result() for future in futures]

    def logprobs_of(
        self, sequences: Sequence[tuple[Sequence[int], Sequence[int]]]
    ) -> list[list[float]]:
        """Return the log-probability of each token of continuations, each given with the prompt before it."""
        pairs = [(tuple(prompt), tuple(continuation)) for prompt, continuation in sequences]
        for prompt, continuation in pairs:
            if not prompt or len(prompt) + len(continuation) > self.model.context:
                raise LudusError(
                    f"a sequence has {len(prompt)} tokens of prompt and {len(continuation)} after it; the"
                    f" model needs a prompt, and takes at most {self.model.context} tokens in all"
                )
        return self._between(lambda: self._decoder.logprobs(pairs))

    def check_batch_invariance(self) -> None:
        """Raise LudusError, naming the remedy, if samples would depend on what else is sampled."""
        self._between(
            lambda: check_invariance(
                self._decoder,
                self._vocabulary,
                context=self.model.context,
                max_rows=self._max_rows,
                num_parameters=self.model.num_parameters,
            )
        )

    def swap(self, model: LanguageModel) -> None:
        """Sample from another model, or from new weights of this, in all requests from now on.

        Those submitted before end with the weights they began with.
        """
        self._between(lambda: self._take(model))

    def close(self) -> None:
        """End the thread; requests that are not done fail."""
        with self._guard:
            self._is_closed = True
            thread = self._thread
        if thread is not None:
            self._inbox.put(None)
            thread.join()

    def _take(self, model: LanguageModel) -> None:
        decoder, vocabulary = self._made(model)
        self.model, self._decoder, self._vocabulary = model, decoder, vocabulary
        self._batch = self._empty_batch()

    def _made(self, model: LanguageModel) -> tuple[Decoder, Vocabulary]:
        decoder = decoder_of(model, batching=self._batching, cache_bytes=self._cache_bytes)
        return decoder, Vocabulary(model.tokenizer, model.num_logits)

    def _empty_batch(self) -> RowBatch:
        decoder, context = self._decoder.fresh(), self.model.context
        return RowBatch(decoder, self._vocabulary, context=context, max_rows=self._max_rows)

    def _check_open(self) -> None:
        if self._is_closed:
            raise LudusError(f"the engine of {self.model.name} is closed")

    def _send(self, given: Ticket | _Job) -> None:
        with self._guard:
            self._check_open()
            if self._thread is None:
                name = f"sampling {self.model.name}"
                self._thread = threading.Thread(target=self._run, name=name, daemon=True)
                self._thread.start()
            self._inbox.put(given)

    def _cancel(self, ticket: Ticket) -> None:
        ticket.is_cancelled = True
        self._batch.has_cancelled = True

    def _between(self, do: Callable[[], T]) -> T:
        """Return the result of something done while no row is sampled."""
        with self._guard:
            self._check_open()
            if self._thread is None:
                return do()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(do())
            except BaseException as error:
                future.set_exception(error)

        self._send(_Job(run))
        return future.result()

    def _run(self) -> None:
        """Batch what comes in until the engine is closed."""
        waiting: _Job | None = None
        while True:
            while waiting is None and (self._batch.is_idle or not self._inbox.empty()):
                given = self._inbox.get()
                if given is None:
                    self._fail_all(LudusError(f"the engine of {self.model.name} was closed"))
                    return
                if isinstance(given, Ticket):
                    self._batch.add(given)
                else:
                    waiting = given
            if waiting is not None and self._batch.is_idle:
                waiting.do()
                waiting = None
                continue
            try:
                self._batch.step()
            except BaseException as error:
                readable = _readable(error)
                # The traceback stays at the cause, for reports of defects.
                readable.__cause__ = error if readable is not error else error.__cause__
                self._fail_all(readable)

    def _fail_all(self, error: BaseException) -> None:
        tickets, self._batch = self._batch.tickets(), self._empty_batch()
        for ticket in tickets:
            ticket.fail(error)


def _readable(error: BaseException) -> LudusError:
    """Return the error of the requests that were sampled when something went wrong."""
    if isinstance(error, LudusError):
        return error
    if is_out_of_memory(error):
        return LudusError(
            "there is not enough memory to sample; allow fewer rows (max_rows) or ask for fewer tokens"
        )
    return LudusError(f"sampling failed: {type(error).__name__}: {error}")
