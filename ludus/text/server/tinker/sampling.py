"""Sampling for Tinker's API: the futures of samples, by session and number."""

from __future__ import annotations

import contextlib
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from ludus.core.errors import LudusError
from ludus.seeds import derive
from ludus.text.sampling.engine import SamplingEngine
from ludus.text.sampling.request import Sample as EngineSample, SampleRequest
from ludus.text.server.loaded_models import LoadedModel, LoadedModels
from ludus.text.server.tinker.outcomes import (
    Failure,
    Outcome,
    SampledTokens,
    SampleOutput,
    StopReason,
)
from ludus.text.server.tinker.requests import RequestRefused, SampleBody
from ludus.text.server.tinker.run_record import SamplerRecord

T = TypeVar("T")
_MOST_KEPT = 8192


class Samples:
    """Submits samples to the engines of models, and keeps their outcomes until they are not needed."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models
        self._guard = threading.Lock()
        self._outcomes: OrderedDict[str, Future[Outcome]] = OrderedDict()
        self._last_use: dict[str, int] = {}
        self._num_uses = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tinker-sampling")

    def last_use(self, path: str) -> int:
        """Return when saved weights were last sampled from: a higher number is later, 0 is never."""
        return self._last_use.get(path, 0)

    def submit(self, request_id: str, record: SamplerRecord, body: SampleBody) -> None:
        """Begin to sample; a request of this id that came before is not sampled again."""
        with self._guard:
            if request_id in self._outcomes:
                return
            if record.model_path is not None:
                self._num_uses += 1
                self._last_use[record.model_path] = self._num_uses
        model = self._models.acquire(record.model_path or record.base_model)
        try:
            request = read_request(body, record, model)
            scored = request.prompt if body.prompt_logprobs else None
            outcome = self._sampled(model.engine, request, scored)
        except BaseException:
            self._models.release(model)
            raise
        outcome.add_done_callback(lambda done: self._aside(self._models.release, model))
        with self._guard:
            self._outcomes[request_id] = outcome
            while len(self._outcomes) > _MOST_KEPT:
                self._outcomes.popitem(last=False)

    def _sampled(
        self, engine: SamplingEngine, request: SampleRequest, scored: tuple[int, ...] | None
    ) -> Future[Outcome]:
        """Return the outcome of a request, with the log-probabilities of a prompt."""
        outcome: Future[Outcome] = Future()

        def settle(done: Future[list[EngineSample]]) -> None:
            try:
                samples = tuple(_sampled(one) for one in done.result())
                prompt = None if scored is None else _scores(engine, scored)
                outcome.set_result(SampleOutput(samples, prompt))
            except LudusError as error:
                outcome.set_result(Failure(str(error)))
            except Exception as error:
                outcome.set_result(Failure(f"{type(error).__name__}: {error}", "server"))

        submitted = engine.submit(request)
        if scored is None:
            submitted.add_done_callback(settle)
        else:
            submitted.add_done_callback(lambda done: self._aside(settle, done))
        return outcome

    def _aside(self, deed: Callable[[T], None], given: T) -> None:
        """Do something that may wait for an engine, which the engine's own thread must not."""
        # After `close` nobody waits for it.
        with contextlib.suppress(RuntimeError):
            self._thread.submit(deed, given)

    def close(self) -> None:
        """Stop; the outcomes of samples in progress are lost."""
        self._thread.shutdown(cancel_futures=True)

    def outcome(self, request_id: str) -> Future[Outcome]:
        """Return the outcome of a request; raise RequestRefused if it must be sent again, after a restart."""
        with self._guard:
            found = self._outcomes.get(request_id)
        if found is None:
            raise RequestRefused(
                f"samples {request_id} are not known here; ask for them again", status=410
            )
        return found


def _scores(engine: SamplingEngine, prompt: tuple[int, ...]) -> tuple[float, ...]:
    return (math.nan, *engine.logprobs_of([(prompt[:1], prompt[1:])])[0])


def _sampled(sample: EngineSample) -> SampledTokens:
    reason: StopReason = "length" if sample.finish_reason == "length" else "stop"
    return SampledTokens(tuple(sample.tokens), tuple(sample.logprobs or ()), reason)


def read_request(body: SampleBody, record: SamplerRecord, model: LoadedModel) -> SampleRequest:
    """Return the request for the engine; raise RequestRefused for what it cannot do."""
    _check_extras(body)
    prompt = body.prompt.ints("the prompt")
    params = body.sampling_params
    room = max(1, model.context - len(prompt))
    seed = params.seed
    if seed is None:
        assert body.seq_id is not None
        seed = derive(record.number, "samples without a seed", body.seq_id)
    request = SampleRequest(
        prompt=tuple(prompt),
        n=body.num_samples,
        seed=seed,
        max_tokens=params.max_tokens or room,
        temperature=params.temperature,
        top_p=params.top_p,
        stop=_stop_texts(params.stop, model),
        logprobs=True,
    )
    request.check(model.tokenizer.vocab_size, model.context)
    return request


def _check_extras(body: SampleBody) -> None:
    given = {
        "topk_prompt_logprobs": body.topk_prompt_logprobs > 0,
        "topk_sample_logprobs": body.topk_sample_logprobs > 0,
        "target_prompt_logprobs": body.target_prompt_logprobs is not None,
        "prompt_alt_tokens_k": body.prompt_alt_tokens_k > 0,
        "prompt_logprobs_last_n": body.prompt_logprobs_last_n is not None,
        "record_stability_info": bool(body.record_stability_info),
        "sampling_params.top_k": body.sampling_params.top_k not in (-1, 0),
    }
    for name, is_given in given.items():
        if is_given:
            raise RequestRefused(f"this server does not do {name}; leave it out")


def _stop_texts(
    stop: str | Sequence[str] | Sequence[int] | None, model: LoadedModel
) -> tuple[str, ...]:
    """Return the texts that end a sample; the tokens that end a message always do."""
    if stop is None:
        return ()
    if isinstance(stop, str):
        return (stop,)
    if not stop:
        raise RequestRefused(
            "'stop' is [], but this server cannot sample on past the end of a message"
        )
    found = []
    for one in stop:
        if isinstance(one, str):
            found.append(one)
        elif one not in model.tokenizer.ends:
            text = model.tokenizer.decode([one])
            if not text or model.tokenizer.encode(text) != [one]:
                raise RequestRefused(
                    f"'stop' has the token {one}, which is no text of its own; give texts"
                )
            found.append(text)
    return tuple(found)
