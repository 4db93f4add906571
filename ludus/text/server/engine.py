"""TextEngine: models of this machine, sampled from and tuned, without HTTP.

ROOT/models/        ModelLibrary    models, by name
ROOT/files/         FileStore       uploaded files
ROOT/jobs/          JobStore        fine-tuning jobs
ROOT/runs/                          the runs of jobs that have not succeeded
ROOT/tinker/        TinkerService   models that are trained through Tinker's API
ROOT/LOCK                           held by the one process that serves the root
"""

from __future__ import annotations

import contextlib
import re
import secrets
import tempfile
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from ludus.core.errors import LudusError
from ludus.core.services import drop_message
from ludus.store.local import LocalStorage
from ludus.text.chat import ChatAnswer, ChatChoice, ChatRequest, TokenLogprob
from ludus.text.models.language_model import CONFIG, read_json
from ludus.text.models.library import LibraryEntry, ModelLibrary
from ludus.text.models.new_model import NewModelConfig, make_model
from ludus.text.sampling.request import OnToken, RequestError, Sample, SampleRequest
from ludus.text.server.chat_request import ChatParameters
from ludus.text.server.errors import ApiError, invalid, no_such_model
from ludus.text.server.files import FileStore
from ludus.text.server.job_record import OPEN
from ludus.text.server.job_runner import JobRunner
from ludus.text.server.job_store import JobStore
from ludus.text.server.jobs import Jobs
from ludus.text.server.loaded_models import LoadedModel, LoadedModels
from ludus.text.server.settings import EngineSettings, Say
from ludus.text.server.tinker.places import LibraryWithSaved
from ludus.text.server.tinker.service import RUNS, TinkerService

_SEEDS = 2**63
_LEAST = 1e-9
_UNFINISHED = re.compile(r"\.(tmp|trash)-[0-9a-zA-Z_-]+$")


class TextEngine:
    """Samples from the models of a root and tunes them; safe to call from several threads.

    with TextEngine(root) as engine:
        engine.add_new_model("tiny", config)
        answer = engine.chat(request).result()
    """

    library: ModelLibrary
    files: FileStore
    jobs: Jobs
    models: LoadedModels
    tinker: TinkerService

    def __init__(
        self, root: str | Path, settings: EngineSettings | None = None, *, tell: Say = drop_message
    ) -> None:
        self.root = Path(root)
        self.settings = EngineSettings() if settings is None else settings
        self._tell = tell
        self._closing = contextlib.ExitStack()

    def _tell_event(self, text: str, *, event: str | None = None) -> None:
        self._tell(text)

    def __enter__(self) -> TextEngine:
        """Lock the root, and go on with its jobs; raise RunError if another process serves it."""
        with contextlib.ExitStack() as opened:
            storage = LocalStorage(self.root)
            storage.check_place()
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = opened.enter_context(storage.lock())
            storage.check_owned = lock.check
            for folder in ("", "files", "jobs", "models"):
                _sweep(storage, folder)
            tinker = self.root / "tinker"
            self.library = LibraryWithSaved(self.root / "models", tinker / RUNS)
            self.files = FileStore(storage)
            self.models = LoadedModels(self.library, self.settings, tell=self._tell)
            opened.callback(self.models.close)
            device = self.settings.device
            self.tinker = TinkerService(
                tinker, self.library, self.models, device=device, tell=self._tell_event
            )
            opened.callback(self.tinker.close)
            store = JobStore(storage)
            opened.callback(store.close)
            runs = self.root / "runs"
            runner = JobRunner(store, self.library, runs, self.settings, tell=self._tell)
            self.jobs = Jobs(store, self.files, self.library, runner)
            self.jobs.start()
            opened.callback(self.jobs.close)
            self._closing = opened.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop sampling, and the running job where it can be resumed; release the root."""
        self._closing.close()
        self._closing = contextlib.ExitStack()

    def add_new_model(self, name: str, config: NewModelConfig) -> None:
        """Make a model with random weights, unless there is one of this name already."""
        if name in self.library:
            return
        self.library.check_free(name)
        with tempfile.TemporaryDirectory(dir=self.root, prefix="new.tmp-") as folder:
            make_model(config, Path(folder, "model"), name=name)
            self.library.add(name, Path(folder, "model"))

    def add_model(self, name: str, directory: str | Path) -> None:
        """Copy the model of a directory, unless there is one of this name already."""
        if name not in self.library:
            self.library.add(name, directory)

    def check_model(self, name: str) -> None:
        """Load a model, and check that its samples do not depend on the load; raise LudusError if not."""
        self.models.release(self.models.acquire(name))

    def is_loaded(self, name: str) -> bool:
        """Return whether a model is in memory."""
        return name in self.models

    def context_of(self, entry: LibraryEntry) -> int | None:
        """Return the maximum number of tokens of prompt and sample together, where its config says it."""
        try:
            config = read_json(entry.directory / CONFIG)
        except LudusError:
            return None
        found = config.get("max_position_embeddings") or config.get("n_positions")
        return found if isinstance(found, int) else None

    def entry(self, name: str) -> LibraryEntry:
        """Return a model of the library, or raise ApiError."""
        if name not in self.library:
            raise no_such_model(name)
        return self.library.entry(name)

    def delete_model(self, name: str) -> None:
        """Delete a model that was tuned here, unless a job needs it."""
        if not self.entry(name).origin:
            raise ApiError(
                403,
                f"The model `{name}` was not tuned here, so it is not deleted; delete its directory in"
                " `models` of the root while the server is stopped.",
                "model",
                "model_not_deletable",
            )
        for job in self.jobs.store.listed():
            if job.request.model == name and job.status in {*OPEN, "paused"}:
                text = f"The model `{name}` is being tuned by the job {job.id}; cancel it first."
                raise invalid(text, "model", "model_in_use")
        self.library.delete(name)
        self.models.drop(name)

    def prompt(self, chat: ChatParameters, model: LoadedModel) -> tuple[int, ...]:
        """Return the tokens of a conversation; raise ApiError if they leave no room for a sample."""
        try:
            found = model.tokenizer.encode_chat(chat.messages, add_generation_prompt=True)
        except LudusError as error:
            raise invalid(f"Invalid 'messages': {error}.", "messages") from None
        if len(found) >= model.context:
            raise invalid(
                f"This model's maximum context length is {model.context} tokens. However, your messages"
                f" resulted in {len(found)} tokens. Please reduce the length of the messages.",
                "messages",
                "context_length_exceeded",
            )
        return tuple(found)

    def submit(
        self,
        chat: ChatParameters,
        model: LoadedModel,
        prompt: tuple[int, ...],
        on_token: OnToken | None = None,
    ) -> Future[list[Sample]]:
        """Return a future of the samples; without a seed, of a random one."""
        seed = secrets.randbelow(_SEEDS) if chat.seed is None else chat.seed % _SEEDS
        request = SampleRequest(
            prompt=prompt,
            n=chat.n,
            seed=seed,
            max_tokens=most_tokens(chat, model, prompt),
            temperature=chat.temperature,
            # As top_p falls to 0 the likeliest token alone remains.
            top_p=chat.top_p or _LEAST,
            stop=chat.stop,
            logprobs=chat.logprobs,
            top_logprobs=chat.top_logprobs,
            presence_penalty=chat.presence_penalty,
            frequency_penalty=chat.frequency_penalty,
            logit_bias=chat.logit_bias,
        )
        try:
            return model.engine.submit(request, on_token)
        except RequestError as error:
            raise invalid(f"Invalid request: {error}.") from None

    def chat(self, request: ChatRequest) -> Future[ChatAnswer]:
        """Return a future of the answer; the model is loaded before this returns."""
        chat = ChatParameters(
            model=request.model,
            messages=request.messages,
            n=request.n,
            seed=request.seed,
            stop=request.stop,
            temperature=request.temperature,
            top_p=request.top_p,
            max_tokens=request.max_tokens,
            logprobs=request.logprobs,
        )
        model = self.models.acquire(chat.model)
        answer: Future[ChatAnswer] = Future()
        try:
            prompt = self.prompt(chat, model)
            sampling = self.submit(chat, model, prompt)
        except BaseException:
            self.models.release(model)
            raise

        def settle(done: Future[list[Sample]]) -> None:
            self.models.release(model)
            if not answer.set_running_or_notify_cancel():
                return
            try:
                answer.set_result(_answer(done.result(), len(prompt), with_logprobs=chat.logprobs))
            except BaseException as error:
                answer.set_exception(error)

        sampling.add_done_callback(settle)
        return answer


def most_tokens(chat: ChatParameters, model: LoadedModel, prompt: Sequence[int]) -> int:
    """Return the maximum number of tokens of a sample: what is asked for, as far as it fits.

    One token is left for the end of a message that is cut off, so that a model can be tuned on it.
    """
    room = max(1, model.context - len(prompt) - 1)
    return room if chat.max_tokens is None else min(chat.max_tokens, room)


def _sweep(storage: LocalStorage, folder: str) -> None:
    """Delete what a killed server was writing or deleting there."""
    for name in storage.names(folder):
        if _UNFINISHED.search(name):
            path = storage.root / folder / name
            if path.is_dir() and not path.is_symlink():
                storage.discard(path)
            else:
                path.unlink(missing_ok=True)


def _answer(samples: Sequence[Sample], prompt_tokens: int, *, with_logprobs: bool) -> ChatAnswer:
    choices = tuple(
        ChatChoice(
            sample.text,
            sample.finish_reason,
            len(sample.tokens),
            tuple(map(TokenLogprob, sample.tokens, sample.logprobs)) if with_logprobs else None,
        )
        for sample in samples
    )
    return ChatAnswer(choices, prompt_tokens, sum(choice.num_tokens for choice in choices))
