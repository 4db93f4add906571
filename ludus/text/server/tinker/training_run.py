"""TrainingRun: one trained model of Tinker's API. Each request is done once, in order, whatever is killed.

<run>/  ops/<seq_id>.json            requests that the snapshot does not hold
        snapshots/<seq_id>/          the state after that many requests, and their newest outcomes
        weights/<name>/              saved states: a model's directory, and training_state/ in it
        sampler_weights/<name>/      models to sample from
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from ludus.core.errors import CheckpointError, LudusError, StorageError
from ludus.store.local import LocalStorage
from ludus.store.state_folder import read_state, write_state
from ludus.text.server.settings import Say
from ludus.text.server.tinker.datums import DatumBatch
from ludus.text.server.tinker.kept_outcomes import KeptOutcome, KeptOutcomes
from ludus.text.server.tinker.operations import Operation, OperationLog
from ludus.text.server.tinker.outcomes import Failure, JsonOutput, Outcome
from ludus.text.server.tinker.requests import AdamParams, RequestRefused
from ludus.text.server.tinker.run_record import RunRecord
from ludus.text.server.tinker.saved_weights import SavedWeights
from ludus.text.server.tinker.training_model import TrainingModel

_WHAT = "a snapshot of a training run"
_MOST_OPERATIONS = 64
_MOST_BYTES = 32 << 20
_FURTHEST = 4096
"""How far ahead of the last request that was done a request may come."""


class TrainingRun:
    """Does the operations of one model; `accept` is called by many threads, `do_next` by one."""

    def __init__(
        self,
        record: RunRecord,
        storage: LocalStorage,
        make: Callable[[], TrainingModel],
        saved: SavedWeights,
        tell: Say,
    ) -> None:
        self.record = record
        self._storage, self._make, self._saved, self._tell = storage, make, saved, tell
        self._log = OperationLog(storage)
        self._guard = threading.Lock()
        self._model: TrainingModel | None = None
        self._outcomes = KeptOutcomes()
        self._waiting: dict[int, Operation] = {}
        self._futures: dict[int, Future[Outcome]] = {}
        self._num_done = 0
        self._num_since, self._bytes_since = 0, 0
        """Operations since the last snapshot, and the bytes of their files."""
        self._read()

    def _read(self) -> None:
        """Find the last snapshot and the requests after it; the model is loaded when one is done."""
        self._storage.sweep()
        found = [int(name) for name in self._storage.names("snapshots") if name.isdigit()]
        if found:
            state = self._read_snapshot(max(found))
            self._outcomes.load_state_dict(state["outcomes"])
            self._num_done = max(found)
        for operation in self._log.read():
            if operation.seq_id > self._num_done:
                self._put_waiting(operation)
        self._log.forget(up_to=self._num_done)

    def _read_snapshot(self, number: int) -> dict[str, Any]:
        path = self._storage.path(f"snapshots/{number:010d}")
        state: dict[str, Any] = read_state(path, what=_WHAT)[0]
        return state

    def _put_waiting(self, operation: Operation) -> None:
        self._waiting[operation.seq_id] = operation
        self._futures[operation.seq_id] = Future()

    def accept(self, operation: Operation) -> None:
        """Make a request durable, to be done in its turn; one that came before changes nothing.

        Raise RequestRefused if its seq_id belongs to another request, or lies too far ahead.
        """
        seq_id = operation.seq_id
        with self._guard:
            before = self._digest_of(seq_id)
            if before is None and seq_id > self._num_done:
                if seq_id > self._num_done + _FURTHEST:
                    raise RequestRefused(
                        f"seq_id {seq_id} of {self.record.model_id} comes more than {_FURTHEST} after the"
                        f" last one done, {self._num_done}; number the requests from 1 without gaps"
                    )
                self._bytes_since += self._log.write(operation)
                self._put_waiting(operation)
                return
        if before is not None and before != operation.digest():
            raise RequestRefused(
                f"seq_id {seq_id} of {self.record.model_id} was given to another request, which is done once"
                " and for all; create a model of its own for another program"
            )

    def _digest_of(self, seq_id: int) -> str | None:
        if seq_id in self._waiting:
            return self._waiting[seq_id].digest()
        kept = self._outcomes.get(seq_id)
        return None if kept is None else kept.digest

    def outcome(self, seq_id: int) -> Future[Outcome]:
        """Return the outcome of a request, once it is done; raise RequestRefused if it is not known."""
        with self._guard:
            kept = self._outcomes.get(seq_id)
            if kept is not None:
                done: Future[Outcome] = Future()
                done.set_result(kept.outcome)
                return done
            if seq_id in self._futures:
                return self._futures[seq_id]
            if 1 <= seq_id <= self._num_done:
                raise RequestRefused(
                    f"request {seq_id} of {self.record.model_id} was done, but its outcome is no longer kept",
                    status=410,
                )
            raise RequestRefused(
                f"{self.record.model_id} was never sent a request {seq_id}", status=404
            )

    @property
    def is_ready(self) -> bool:
        """Whether the next operation has come."""
        with self._guard:
            return self._num_done + 1 in self._waiting

    def do_next(self) -> None:
        """Do the next operation, keep its outcome, and take a snapshot when one is due."""
        with self._guard:
            operation = self._waiting[self._num_done + 1]
        outcome = self._outcome_of(operation)
        with self._guard:
            self._num_done += 1
            self._num_since += 1
            del self._waiting[operation.seq_id]
            self._outcomes.put(operation.seq_id, KeptOutcome(operation.digest(), outcome))
            future = self._futures.pop(operation.seq_id)
        if operation.kind == "load_weights":
            # What was loaded may be deleted once this is answered, so it must never be loaded again.
            self._save_snapshot()
        future.set_result(outcome)
        if self._num_since >= _MOST_OPERATIONS or self._bytes_since >= _MOST_BYTES:
            self._save_snapshot()

    def _outcome_of(self, operation: Operation) -> Outcome:
        try:
            model = self._loaded()
            if operation.failure is not None:
                model.skip(operation.kind)
                return operation.failure
            return self._done(model, operation)
        except (StorageError, CheckpointError) as error:
            return self._failed(operation, str(error))
        except LudusError as error:
            return Failure(str(error))
        except Exception as error:
            return self._failed(operation, f"{type(error).__name__}: {error}")

    def _failed(self, operation: Operation, why: str) -> Failure:
        """Return a failure of this machine; it is durable, since another try might not fail."""
        self._tell(f"request {operation.seq_id} of {self.record.model_id} failed: {why}")
        failure = Failure(f"the server failed at this request: {why}", "server")
        if self._model is not None:
            self._model.skip(operation.kind)
        try:
            self._log.write(operation.failed(failure))
        except LudusError as error:
            self._tell(f"and the failure could not be written: {error}")
        return failure

    def _done(self, model: TrainingModel, operation: Operation) -> Outcome:
        body = operation.body
        match operation.kind:
            case "forward":
                return model.forward(DatumBatch.from_json(body))
            case "forward_backward":
                return model.forward_backward(DatumBatch.from_json(body))
            case "optim_step":
                return JsonOutput({"metrics": model.optim_step(AdamParams(**body))})
            case "load_weights":
                model.load(self._saved.state_of(body["path"]), with_optimizer=body["optimizer"])
                loaded = {"path": body["path"], "model_id": self.record.model_id}
                return JsonOutput(loaded | {"type": "load_weights"})
            case "save_weights":
                return JsonOutput(self._saved.save_state(self.record, model, operation))
            case "save_weights_for_sampler":
                return JsonOutput(self._saved.save_sampler(self.record, model, operation))

    def _loaded(self) -> TrainingModel:
        if self._model is None:
            model = self._make()
            if self._num_done:
                model.load_state_dict(self._read_snapshot(self._num_done)["model"])
            elif self.record.loaded_from is not None:
                path = self._saved.state_of(self.record.loaded_from)
                model.load(path, with_optimizer=self.record.with_optimizer)
            self._model = model
        return self._model

    def release(self) -> None:
        """Free the memory of the model, in the thread that works; the next operation loads it again."""
        if self._model is not None and self._num_since:
            self._save_snapshot()
        self._model = None

    def _save_snapshot(self) -> None:
        """Save the state, then delete the requests and snapshots that it makes superfluous."""
        with self._guard:
            number = self._num_done
            outcomes = self._outcomes.state_dict()
            assert self._model is not None
        state = {"model": self._model.state_dict(), "outcomes": outcomes}
        try:
            write_state(self._folder(number), state, what=_WHAT)
            for name in self._storage.names("snapshots"):
                if name.isdigit() and int(name) < number:
                    self._storage.remove(f"snapshots/{name}")
            self._log.forget(up_to=number)
        except LudusError as error:
            # Nothing is lost: the requests stay, and the next snapshot is tried after more of them.
            self._tell(f"{self.record.model_id} could not be saved: {error}")
        self._num_since, self._bytes_since = 0, 0

    def _folder(self, number: int) -> Path:
        return self._storage.path(f"snapshots/{number:010d}")
