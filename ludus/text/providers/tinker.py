"""The provider `tinker`: any server of Tinker's API, sampled from by tokens and trained by gradients."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

from ludus.config.base import PositiveFloat
from ludus.config.registry import register
from ludus.core.errors import LudusError
from ludus.text.chat import ChatAnswer, ChatChoice, ChatRequest, FinishReason, TokenLogprob
from ludus.text.client.secret import KeyConfig, Secret
from ludus.text.jobs import Job, JobSpec
from ludus.text.models.tokenizer import ChatTokenizer
from ludus.text.provider import (
    ModelInfo,
    Provider,
    ProviderConfig,
    ProviderError,
    ProviderServices,
)
from ludus.text.providers._own_server import (
    Handle,
    NewModelSection,
    problems_of_address,
    started,
)
from ludus.text.tinker.api import ApiSample, TinkerApi
from ludus.text.tinker.training import TinkerTraining


class TinkerConfig(ProviderConfig):
    """Where the server is, and how long it is asked."""

    kind: Literal["tinker"]
    """A server of Tinker's API: ludus's own, the hosted service, or another."""
    url: str | None
    """The base URL, without /api/v1, such as http://127.0.0.1:8000; null: the run starts a server and stops
    it at its end."""
    key: KeyConfig | None
    """The API key; null sends none."""
    tokenizer: str | None
    """The directory with the tokenizer of the models; null takes the one that the server names, which must
    be on this machine."""
    new_models: dict[str, NewModelSection]
    """The models that a server of the run's own makes where it does not have them, by name."""
    patience_seconds: PositiveFloat
    """How long a request of training is sent again while the server does not answer; then the run stops."""

    def problems(self) -> Iterator[str]:
        """Yield each mistake."""
        yield from problems_of_address(self.url, self.key, self.new_models)


@register("provider", "tinker")
class TinkerProvider(Provider):
    """Samples through sampling sessions, one a model, and opens TrainingClients."""

    Config = TinkerConfig
    can_list_jobs: ClassVar[bool] = False
    config: TinkerConfig

    def __init__(self, config: TinkerConfig, services: ProviderServices) -> None:
        super().__init__(config, services)
        self._handle: Handle | None = None
        self._session_id: str | None = None
        self._counts = itertools.count()
        self._sampling: dict[str, _Sampling] = {}
        self._opening = asyncio.Lock()
        self._tokenizer: ChatTokenizer | None = None

    def lists(self, name: str) -> bool:
        """Return whether this is the name of a base model, and no path of saved weights."""
        return not name.startswith("tinker://")

    async def open(self) -> None:
        """Connect; start a server first if the config names none."""
        config = self.config
        key = None if config.key is None else config.key.read()
        url = config.url
        if url is None:
            self._handle = started(self.services.directory(), config.new_models)
            url = self._handle.url.removesuffix("/v1")
            key = Secret(self._handle.token, place="its own token")
        self._api = TinkerApi(url, key, patience_seconds=config.patience_seconds)
        await self._api.open()

    async def close(self) -> None:
        """Disconnect, and stop a server of the run's own."""
        try:
            if "_api" in vars(self):
                await self._api.close()
        finally:
            if self._handle is not None:
                handle, self._handle = self._handle, None
                await asyncio.to_thread(handle.close)

    async def models(self) -> Sequence[ModelInfo]:
        """Return the base models."""
        found = await self._api.capabilities()
        return [ModelInfo(name, context=context) for name, context in found]

    async def chat(self, request: ChatRequest) -> ChatAnswer:
        """Return samples of the next message, their tokens with the log-probabilities of sampling."""
        sampling = await self._sampling_of(request.model)
        tokenizer = await self._tokenizer_of(sampling.base_model)
        prompt = tokenizer.encode_chat(request.messages, add_generation_prompt=True)
        found = await self._api.sample(sampling.session_id, next(sampling.numbers), prompt, request)
        choices = tuple(_choice(one, request, tokenizer) for one in found)
        return ChatAnswer(choices, len(prompt), sum(choice.num_tokens for choice in choices))

    async def create_training(
        self, base_model: str, *, lora_rank: int | None, seed: int
    ) -> TinkerTraining:
        """Return a TrainingClient of a new model; lora_rank None trains all weights.

        ludus's server takes both; the hosted service trains adapters alone.
        """
        session_id = await self._session()
        tokenizer = await self._tokenizer_of(base_model)
        model_id = await self._api.create_model(
            session_id, next(self._counts), base_model, lora_rank=lora_rank, seed=seed
        )
        return TinkerTraining(self._api, tokenizer, model_id)

    async def reopen_training(self, base_model: str) -> TinkerTraining:
        """Return a TrainingClient without a model, for `load_state_dict` of one that was trained before."""
        return TinkerTraining(self._api, await self._tokenizer_of(base_model), "")

    async def _session(self) -> str:
        if self._session_id is None:
            self._session_id = await self._api.create_session()
        return self._session_id

    async def _sampling_of(self, model: str) -> _Sampling:
        async with self._opening:
            if model not in self._sampling:
                session_id = await self._session()
                opened = await self._api.create_sampling_session(
                    session_id, next(self._counts), model
                )
                self._sampling[model] = _Sampling(*opened)
            return self._sampling[model]

    async def _tokenizer_of(self, base_model: str) -> ChatTokenizer:
        if self._tokenizer is None:
            directory = self.config.tokenizer
            if directory is None:
                directory = await self._api.tokenizer_directory(base_model)
            # Reading a provider's config must not load torch.
            from ludus.text.tinker.tokenizers import read_tokenizer

            try:
                self._tokenizer = await asyncio.to_thread(read_tokenizer, directory)
            except LudusError as error:
                raise ProviderError(
                    f"{error}; set 'tokenizer' of the provider to its directory"
                ) from None
        return self._tokenizer

    async def create_job(self, spec: JobSpec) -> Job:
        """Raise: this API has no jobs."""
        raise _no_jobs()

    async def find_jobs(self, key: str) -> list[Job]:
        """Raise: this API has no jobs."""
        raise _no_jobs()

    async def job(self, job_id: str) -> Job:
        """Raise: this API has no jobs."""
        raise _no_jobs()

    async def cancel_job(self, job_id: str) -> Job:
        """Raise: this API has no jobs."""
        raise _no_jobs()


class _Sampling:
    """A sampling session, and the numbers of its requests."""

    def __init__(self, session_id: str, base_model: str) -> None:
        self.session_id, self.base_model = session_id, base_model
        self.numbers = itertools.count()


def _choice(sample: ApiSample, request: ChatRequest, tokenizer: ChatTokenizer) -> ChatChoice:
    text = tokenizer.decode(sample.tokens)
    ends = [text.find(stop) for stop in request.stop if stop in text]
    reason: FinishReason = "length" if sample.stop_reason == "length" else "stop"
    logprobs = None
    if request.logprobs:
        logprobs = tuple(map(TokenLogprob, sample.tokens, sample.logprobs))
    return ChatChoice(text[: min(ends, default=len(text))], reason, len(sample.tokens), logprobs)


def _no_jobs() -> ProviderError:
    return ProviderError(
        "a server of Tinker's API has no fine-tuning jobs; train through it by gradients (pure_text_pg),"
        " or choose another provider"
    )
