"""A tiny model, and requests to train it, for the tests of Tinker's API."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ludus.store.local import LocalStorage
from ludus.text.models.language_model import load_model
from ludus.text.models.library import ModelLibrary
from ludus.text.models.new_model import NewModelConfig, make_model
from ludus.text.server.tinker.lora import LoraShape
from ludus.text.server.tinker.operations import Kind, Operation
from ludus.text.server.tinker.outcomes import ForwardOutput, JsonOutput
from ludus.text.server.tinker.requests import AdamParams
from ludus.text.server.tinker.run_record import RunRecord, SamplerRecord
from ludus.text.server.tinker.saved_weights import SavedWeights
from ludus.text.server.tinker.training_model import TrainingModel
from ludus.text.server.tinker.training_run import TrainingRun

TINY = NewModelConfig(
    kind="byte_llama",
    width=32,
    num_layers=1,
    num_heads=2,
    num_kv_heads=2,
    mlp_width=64,
    context=48,
    seed=3,
    embedding_std=0.02,
)
LORA = LoraShape(rank=4, seed=1, attention=True, mlp=True, output=True)
ADAM = AdamParams(learning_rate=0.01).model_dump(exclude={"type"})
RECORD = RunRecord("session-a:train:0", "tiny", None)


def make_library(root: Path) -> ModelLibrary:
    """Return a library with the model `tiny`."""
    make_model(TINY, root / "made")
    library = ModelLibrary(root / "models")
    library.add("tiny", root / "made")
    return library


def training_model(library: ModelLibrary, lora: LoraShape | None = None) -> TrainingModel:
    return TrainingModel(load_model(library.directory("tiny"), name="tiny"), lora)


def batch(*texts: str, loss: str = "cross_entropy", **inputs: list[float]) -> dict[str, Any]:
    """Return the body of a batch that predicts the bytes of some texts."""
    datums = []
    for text in texts:
        tokens = list(text.encode())
        own = inputs or {"weights": [1.0] * (len(tokens) - 1)}
        datums.append([tokens[:-1], tokens[1:], own])
    return {"loss": loss, "config": {}, "datums": datums}


def program() -> list[Operation]:
    """Return requests of every kind: two steps, each on two batches, and what is saved in between."""
    named = {"user_metadata": None, "sampling_session_seq_id": None}
    asked: list[tuple[Kind, dict[str, Any]]] = [
        ("forward_backward", batch("hello", "you")),
        ("forward_backward", batch("there")),
        ("optim_step", ADAM),
        ("save_weights", {"path": "half", "overwrite": False, **named}),
        ("save_weights_for_sampler", {**named, "path": None, "sampling_session_seq_id": 0}),
        ("forward_backward", batch("again")),
        ("optim_step", {**ADAM, "beta1": 0.5, "weight_decay": 0.1}),
        ("forward", batch("hello")),
        ("load_weights", {"path": "tinker://session-a:train:0/weights/half", "optimizer": True}),
        ("forward_backward", batch("hello")),
        ("optim_step", ADAM),
        ("forward", batch("hello", "there")),
    ]
    return [Operation(seq_id, kind, body) for seq_id, (kind, body) in enumerate(asked, start=1)]


def open_run(
    root: Path, library: ModelLibrary, *, kind: type[LocalStorage] = LocalStorage
) -> TrainingRun:
    """Return the run of a directory, which a restarted server finds there."""
    runs = kind(root)
    runs.make_root()
    samplers: dict[str, SamplerRecord] = {}
    saved = SavedWeights(runs, samplers.__setitem__, lambda path: 0)
    storage = kind(runs.make(RECORD.folder))
    return TrainingRun(RECORD, storage, lambda: training_model(library), saved, print)


def do_all(run: TrainingRun) -> None:
    while run.is_ready:
        run.do_next()


def logprobs(run: TrainingRun, seq_id: int) -> list[float]:
    outcome = run.outcome(seq_id).result(timeout=0)
    assert isinstance(outcome, ForwardOutput), outcome
    return outcome.logprobs.tolist()


def value(run: TrainingRun, seq_id: int) -> dict[str, Any]:
    outcome = run.outcome(seq_id).result(timeout=0)
    assert isinstance(outcome, JsonOutput), outcome
    return dict(outcome.value)
