"""Sampling for Tinker's API: the futures of samples, by session and number."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future

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
from ludus.text.server.tinker.requests import Refused, Sample
from ludus.text.server.tinker.run_record import SamplerRecord

_MOST_KEPT = 8192


class Samples:
    """Submits samples to the engines of models, and keeps their outcomes until they are not needed."""

    def __init__(self, models: LoadedModels) -> None:
        self._models = models
        self._guard = threading.Lock()
        self._outcomes: OrderedDict[str, Future[Outcome]] = OrderedDict()
        self._last_use: dict[str, int] = {}
        self._num_uses = 0

    def last_use(self, path: str) -> int:
        """Return when saved weights were last sampled from: a higher number is later, 0 is never."""
        return self._last_use.get(path, 0)

    def submit(self, request_id: str, record: SamplerRecord, body: Sample) -> None:
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
            outcome = _Submission(model.engine, request, with_prompt=bool(body.prompt_logprobs))
        except BaseException:
            self._models.release(model)
            raise
        outcome.future.add_done_callback(lambda done: self._models.release(model))
        with self._guard:
            self._outcomes[request_id] = outcome.future
            while len(self._outcomes) > _MOST_KEPT:
                self._outcomes.popitem(last=False)

    def outcome(self, request_id: str) -> Future[Outcome]:
        """Return the outcome of a request; raise Refused if it must be sent again, as after a restart."""
        with self._guard:
            found = self._outcomes.get(request_id)
        if found is None:
            raise Refused(
                f"samples {request_id} are not known here; ask for them again", status=410
            )
        return found


class _Submission:
    """One request in an engine; its future settles once samples and prompt are scored."""

    def __init__(
        self, engine: SamplingEngine, request: SampleRequest, *, with_prompt: bool
    ) -> None:
        self._engine, self._request, self._with_prompt = engine, request, with_prompt
        self.future: Future[Outcome] = Future()
        engine.submit(request).add_done_callback(self._settle)

    def _settle(self, done: Future[list[EngineSample]]) -> None:
        try:
            samples = tuple(_sampled(one) for one in done.result())
            prompt = self._prompt_logprobs() if self._with_prompt else None
            self.future.set_result(SampleOutput(samples, prompt))
        except LudusError as error:
            self.future.set_result(Failure(str(error)))
        except Exception as error:
            self.future.set_result(Failure(f"{type(error).__name__}: {error}", "server"))

    def _prompt_logprobs(self) -> tuple[float, ...]:
        first, *rest = self._request.prompt
        scores = self._engine.logprobs_of([((first,), rest)])[0]
        return (math.nan, *scores)


def _sampled(sample: EngineSample) -> SampledTokens:
    reason: StopReason = "length" if sample.finish_reason == "length" else "stop"
    return SampledTokens(tuple(sample.tokens), tuple(sample.logprobs or ()), reason)


def read_request(body: Sample, record: SamplerRecord, model: LoadedModel) -> SampleRequest:
    """Return the request for the engine; raise Refused for what it cannot do."""
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


def _check_extras(body: Sample) -> None:
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
            raise Refused(f"this server does not do {name}; leave it out")


def _stop_texts(
    stop: str | Sequence[str] | Sequence[int] | None, model: LoadedModel
) -> tuple[str, ...]:
    """Return the texts that end a sample; the tokens that end a message always do."""
    if stop is None:
        return ()
    if isinstance(stop, str):
        return (stop,)
    if not stop:
        raise Refused("'stop' is [], but this server cannot sample on past the end of a message")
    found = []
    for one in stop:
        if isinstance(one, str):
            found.append(one)
        elif one not in model.tokenizer.ends:
            text = model.tokenizer.decode([one])
            if not text or model.tokenizer.encode(text) != [one]:
                raise Refused(
                    f"'stop' has the token {one}, which is no text of its own; give texts"
                )
            found.append(text)
    return tuple(found)
