"""TinkerService: Tinker's API without HTTP, over the models of a directory."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ludus.core.services import drop_message
from ludus.seeds import derive
from ludus.store.local import LocalStorage
from ludus.text.models.language_model import CONFIG, load_model, read_json
from ludus.text.models.library import ModelLibrary
from ludus.text.server.loaded_models import LoadedModels
from ludus.text.server.settings import Say
from ludus.text.server.tinker import requests
from ludus.text.server.tinker.datums import read_batch
from ludus.text.server.tinker.lora import LoraShape
from ludus.text.server.tinker.operations import Kind, Operation
from ludus.text.server.tinker.outcomes import Failure, JsonOutput, Outcome
from ludus.text.server.tinker.registry import Registry
from ludus.text.server.tinker.requests import RequestRefused
from ludus.text.server.tinker.run_record import RunRecord, SamplerRecord
from ludus.text.server.tinker.sampling import Samples
from ludus.text.server.tinker.saved_weights import SavedWeights
from ludus.text.server.tinker.training_model import TrainingModel
from ludus.text.server.tinker.training_run import TrainingRun
from ludus.text.server.tinker.work import Work

RUNS = "runs"
"""The directory of all training runs below the root."""


class TinkerService:
    """Sessions, training runs and sampling sessions below `root`; safe to call from several threads.

    One process may serve a root: its owner holds a lock.

    After a restart every run goes on from its last snapshot and does again what came after it.
    """

    def __init__(
        self,
        root: Path,
        library: ModelLibrary,
        models: LoadedModels,
        *,
        device: str = "cpu",
        tell: Say = drop_message,
    ) -> None:
        """`library` has the base models and finds saved weights in RUNS of the root."""
        self.library, self._models = library, models
        self._device, self._tell = device, tell
        storage = LocalStorage(root)
        storage.make_root()
        self._runs_storage = LocalStorage(root / RUNS)
        self._runs_storage.make_root()
        self.registry = Registry(storage)
        self._samples = Samples(models)
        self.saved = SavedWeights(
            self._runs_storage, self.registry.new_sampler, self._samples.last_use
        )
        self._work = Work(tell)
        self._guard = threading.Lock()
        self._runs: dict[str, TrainingRun] = {}
        self._sizes: dict[str, tuple[int, int]] = {}

    def create_model(self, body: requests.CreateModel) -> str:
        """Create a training run on a base model, and return the id of the request."""
        self.registry.check_session(body.session_id)
        if body.optimizer_config.get("type") != "adamw":
            raise RequestRefused(
                f"optimizer_config is {body.optimizer_config}; this server has adamw alone"
            )
        self._size_of(body.base_model)
        record = RunRecord(
            f"{body.session_id}:train:{body.model_seq_id}",
            body.base_model,
            _lora_shape(body.lora_config, body.model_seq_id),
        )
        self.registry.new_run(record)
        return f"{record.model_id}:0"

    def load_weights(self, body: requests.LoadWeights) -> str:
        """Load saved weights into a training run, or create one from them."""
        if body.model_id is not None:
            plain = {"path": body.path, "optimizer": body.optimizer}
            return self._accept(body.model_id, body.seq_id, "load_weights", plain)
        if body.session_id is None or body.model_seq_id is None:
            raise RequestRefused(
                "load_weights needs model_id and seq_id, or session_id and model_seq_id"
            )
        self.registry.check_session(body.session_id)
        saved = RunRecord.from_json(self.saved.note(body.path)["record"])
        self.saved.state_of(body.path)
        base = body.base_model or saved.base_model
        self._size_of(base)
        model_id = f"{body.session_id}:train:{body.model_seq_id}"
        self.registry.new_run(RunRecord(model_id, base, saved.lora, body.path, body.optimizer))
        return f"{model_id}:0"

    def forward_backward(self, body: requests.ForwardBackward) -> str:
        """Add the gradient of a batch, or compute its log-probabilities alone."""
        kind: Kind = "forward" if body.forward_only else "forward_backward"
        context, vocab_size = self._size_of(self.registry.run(body.model_id).base_model)
        try:
            batch = read_batch(body.forward_backward_input, context=context, vocab_size=vocab_size)
        except RequestRefused as error:
            # Its seq_id is used up all the same, or the requests that follow would wait for it.
            failure = Failure(str(error))
            return self._accept(body.model_id, body.seq_id, kind, {}, failure)
        return self._accept(body.model_id, body.seq_id, kind, batch.to_json())

    def optim_step(self, body: requests.OptimStep) -> str:
        """Take one optimizer step."""
        plain = body.adam_params.model_dump(exclude={"type"})
        return self._accept(body.model_id, body.seq_id, "optim_step", plain)

    def save_weights(self, body: requests.SaveWeights) -> str:
        """Save the state of training."""
        plain = body.model_dump(include={"path", "overwrite", "user_metadata"})
        return self._accept(body.model_id, body.seq_id, "save_weights", plain)

    def save_weights_for_sampler(self, body: requests.SaveForSampler) -> str:
        """Save a model to sample from."""
        if (body.path is None) == (body.sampling_session_seq_id is None):
            raise RequestRefused(
                "save_weights_for_sampler needs a path or a sampling_session_seq_id, one of both"
            )
        plain = body.model_dump(include={"path", "sampling_session_seq_id", "user_metadata"})
        return self._accept(body.model_id, body.seq_id, "save_weights_for_sampler", plain)

    def _accept(
        self,
        model_id: str,
        seq_id: int | None,
        kind: Kind,
        body: dict[str, Any],
        failure: Failure | None = None,
    ) -> str:
        if not seq_id:
            raise RequestRefused(
                f"{kind} needs a seq_id of 1 or more: without one a retry could be done twice"
            )
        run = self._run(model_id)
        run.accept(Operation(seq_id, kind, body, failure))
        self._work.add(run)
        return f"{model_id}:{seq_id}"

    def _run(self, model_id: str) -> TrainingRun:
        record = self.registry.run(model_id)
        with self._guard:
            found = self._runs.get(model_id)
            if found is None:
                storage = LocalStorage(self._runs_storage.make(record.folder))
                found = TrainingRun(
                    record, storage, lambda: self._made(record), self.saved, self._tell
                )
                self._runs[model_id] = found
                self._work.add(found)
            return found

    def _made(self, record: RunRecord) -> TrainingModel:
        directory = self.library.directory(record.base_model)
        model = load_model(directory, name=record.base_model, device=self._device)
        return TrainingModel(model, record.lora)

    def _size_of(self, name: str) -> tuple[int, int]:
        """Return context and vocabulary size of a base model; raise RequestRefused if there is none."""
        if name not in self._sizes:
            if name not in self.library:
                known = ", ".join(self.library.names()) or "none yet"
                raise RequestRefused(
                    f"there is no base model {name!r}; this server has {known}", status=404
                )
            model = self._models.acquire(name)
            self._sizes[name] = model.context, model.tokenizer.vocab_size
            self._models.release(model)
        return self._sizes[name]

    def create_sampling_session(self, body: requests.CreateSamplingSession) -> str:
        """Open a sampling session, and return its id."""
        self.registry.check_session(body.session_id)
        base = body.base_model
        if body.model_path is not None:
            base = str(self.saved.note(body.model_path)["record"]["base_model"])
        elif base is None:
            raise RequestRefused("create_sampling_session needs a base_model or a model_path")
        else:
            self._size_of(base)
        session_id = f"{body.session_id}:sample:{body.sampling_session_seq_id}"
        record = SamplerRecord(base, body.model_path, body.sampling_session_seq_id)
        self.registry.new_sampler(session_id, record)
        return session_id

    def sample(self, body: requests.SampleBody) -> tuple[str, list[str]]:
        """Begin to sample; return the id of the request and those of its samples."""
        if body.sampling_session_id is None or body.seq_id is None:
            raise RequestRefused(
                "asample needs the sampling_session_id and the seq_id of a sampling session"
            )
        record = self.registry.sampler(body.sampling_session_id)
        request_id = f"{body.sampling_session_id}:{body.seq_id}"
        self._samples.submit(request_id, record, body)
        return request_id, [f"{request_id}:{number}" for number in range(body.num_samples)]

    def outcome(self, request_id: str) -> Future[Outcome]:
        """Return the outcome of a request, once it is done."""
        owner, _, number = request_id.rpartition(":")
        if ":sample:" in owner:
            return self._samples.outcome(request_id)
        if not number.isdigit():
            raise RequestRefused(f"there is no request {request_id!r}", status=404)
        if int(number):
            return self._run(owner).outcome(int(number))
        created: Future[Outcome] = Future()
        created.set_result(_created(self.registry.run(owner)))
        return created

    def info(self, model_id: str) -> dict[str, Any]:
        """Return what get_info answers."""
        record = self.registry.run(model_id)
        directory = self.library.directory(record.base_model)
        lora = record.lora
        arch = (
            read_json(directory / CONFIG).get("model_type")
            if (directory / CONFIG).is_file()
            else None
        )
        data = {"arch": arch, "model_name": record.base_model, "tokenizer_id": str(directory)}
        return {
            "type": "get_info",
            "model_data": data,
            "model_id": model_id,
            "is_lora": lora is not None,
            "lora_rank": None if lora is None else lora.rank,
            "model_name": record.base_model,
        }

    def weights_info(self, path: str) -> dict[str, Any]:
        """Return what weights_info answers."""
        record = RunRecord.from_json(self.saved.note(path)["record"])
        found: dict[str, Any] = {
            "base_model": record.base_model,
            "is_lora": record.lora is not None,
        }
        if record.lora is not None:
            lora = record.lora
            found |= {"lora_rank": lora.rank, "train_mlp": lora.mlp, "train_attn": lora.attention}
            found["train_unembed"] = lora.output
        return found

    def base_models(self) -> list[dict[str, Any]]:
        """Return the models that can be trained and sampled from."""
        found = []
        for name in self.library.names():
            context = self._sizes[name][0] if name in self._sizes else None
            about = {"model_name": name, "max_context_length": context}
            # Not in the SDK's types, which drop it: for clients on this machine.
            about["tokenizer_id"] = str(self.library.directory(name))
            found.append(about | {"trainable": True, "sampleable": True})
        return found

    def close(self) -> None:
        """Stop; what was accepted and is not done yet is done after the next start."""
        self._work.close()
        self._samples.close()


def _lora_shape(given: requests.Lora | None, number: int) -> LoraShape | None:
    if given is None:
        return None
    seed = derive(number, "LoRA without a seed") if given.seed is None else given.seed
    return LoraShape(given.rank, seed, given.train_attn, given.train_mlp, given.train_unembed)


def _created(record: RunRecord) -> Outcome:
    if record.loaded_from is None:
        return JsonOutput({"model_id": record.model_id, "type": "create_model"})
    loaded = {"path": record.loaded_from, "model_id": record.model_id}
    return JsonOutput(loaded | {"type": "load_weights"})
