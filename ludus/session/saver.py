"""Checkpointing: decide when to save, snapshot the state at once, and write it in the background."""

from __future__ import annotations

import math
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from ludus.config.base import CheckpointSettings
from ludus.core.errors import LudusError, RunTaken, StorageError
from ludus.core.run import Every, Run, Stateful
from ludus.store import checkpoint, codec, directory
from ludus.store.bests import FIRST, bests
from ludus.store.models import mend, publish, read_model, write_model
from ludus.store.storage import Storage
from ludus.store.tensors import Snapshot

MAX_FAILURES_AT_END = 3


class Background:
    """One thread that runs jobs in order, so that training does not wait for the disk."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self.errors: list[Exception] = []

    def start(self, work: Callable[[], None]) -> None:
        """Wait for the previous job, then start this one."""
        self.wait()
        self._thread = threading.Thread(
            target=self._do, args=(work,), name="ludus-saver", daemon=True
        )
        self._thread.start()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            # The writer must not take the core that training uses. On Linux a thread can have its
            # own priority; elsewhere the number would name some other process.
            if sys.platform == "linux":
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
            work()
        except Exception as error:
            # Every error must be raised in the training thread.
            self.errors.append(error)

    @property
    def is_idle(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def wait(self) -> None:
        """Return when nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


@dataclass(frozen=True)
class WaitingModel:
    """A copy of model weights that is not on disk yet."""

    name: str
    weights: Mapping[str, Tensor]
    note: Mapping[str, Any]


class Saver:
    """The checkpointer of a run: called last at every boundary."""

    def __init__(
        self,
        storage: Storage,
        settings: CheckpointSettings,
        parts: Mapping[str, Stateful],
        *,
        about: Callable[[], dict[str, Any]],
        tell: Callable[..., None],
    ) -> None:
        self._storage = storage
        self._settings = settings
        self._parts = parts
        self._about = about
        self._tell = tell
        self._snapshot = Snapshot()
        self._background = Background()
        intervals = (
            Every(settings.every_opt_steps, "opt_steps"),
            Every(settings.every_epochs, "epoch"),
        )
        self._intervals = [every for every in intervals if every.interval]
        self._every_stages = settings.every_stages
        self._every_seconds = settings.every_seconds or math.inf
        self._last_save = time.monotonic()
        self._has_saved = False
        # The exactness stored in run.json.
        self._noted: str | None = None
        self.saved_number = -1
        """Boundary of the newest checkpoint on disk."""
        self._is_marked = False
        self._has_failed = False
        # All of these are written before the next checkpoint.
        self._models: list[WaitingModel] = []
        self._published: dict[str, str] = {}
        # Models missing from disk, and whether that has been reported.
        self._gone: dict[str, bool] = {}

    def __call__(self, run: Run) -> None:
        """Save if a checkpoint is due, or if the run ends or pauses here."""
        if self._background.errors:
            self._report()
        is_last = run.is_finished or run.is_pausing
        is_due = self._is_due(run)
        if is_last or run.decide(is_due):
            self.save(run)
        elif self._has_models_to_write() and self._is_owned():
            self._background.start(self._write_models)
        if is_last:
            self._finish(run)

    def _is_due(self, run: Run) -> bool:
        is_due = False
        for every in self._intervals:
            is_due |= every.is_due(run)
        if self._every_stages and run.boundaries % self._every_stages == 0:
            return True
        return is_due or time.monotonic() - self._last_save >= self._every_seconds

    def save(self, run: Run) -> None:
        """Snapshot the state now and write it in the background."""
        if not self._is_owned():
            self._last_save = time.monotonic()
            return
        self._background.wait()
        self._report()
        self._report_lost()
        self._mark_first()
        self._last_save = time.monotonic()
        self._has_failed = False
        number = run.boundaries
        if number == self.saved_number:
            return
        if not self._storage.flush_appends():
            problem = "the disk is full: the log is held in memory until there is space"
            self._background.errors.append(StorageError(problem))
            return
        state = {name: dict(part.state_dict()) for name, part in self._parts.items()}
        taken = codec.encode(state, keep=self._snapshot.keep)
        about = {**self._about(), "offsets": self._storage.offsets()}
        about["log_hashes"] = self._storage.log_hashes()

        def write() -> None:
            self._write_models()
            needed = 2 * sum(tensor.nbytes for tensor in taken[1].values())
            if (free := self._storage.free_bytes()) < needed:
                raise StorageError(f"a checkpoint needs {needed} bytes of disk, {free} are free")
            named = {best["model"]: copy for copy, best in bests(about).items()}
            kept = [name for name in about["models"] if self._is_kept(name, named.get(name, FIRST))]
            checkpoint.write(self._storage, number, taken, {**about, "models": kept})
            if self._noted != about["exact"]:
                directory.note_checkpoint(self._storage, about["exact"])
            self._noted, self._has_saved, self.saved_number = about["exact"], True, number
            for name, copy in named.items():
                if name in kept and self._published.get(copy) != name:
                    publish(self._storage, name, copy)
                    self._published[copy] = name
            checkpoint.collect(self._storage, keep_last=self._settings.keep_last)

        self._background.start(write)

    def _has_models_to_write(self) -> bool:
        return bool(self._models) and self._background.is_idle and not self._has_failed

    def _is_owned(self) -> bool:
        """Return whether the directory is still this run's; raise RunTaken where another has it."""
        try:
            self._storage.check_owned()
        except StorageError as error:
            # A lost connection may be back when the next save is due.
            self._background.wait()
            self._background.errors.append(error)
            return False
        return True

    def _is_kept(self, name: str, copy: str) -> bool:
        """Return whether a model named by the state is on disk; if not, the next save reports it."""
        is_kept = mend(self._storage, name, copy)
        if not is_kept:
            self._gone.setdefault(name, False)
        return is_kept

    def _report_lost(self) -> None:
        for name, is_reported in list(self._gone.items()):
            if not is_reported:
                self._gone[name] = True
                reason = f"{name} is gone; the run is saved without it, and a resume will forget it"
                self._tell("best_model_lost", reason=reason)

    def _mark_first(self) -> None:
        """Record that a checkpoint exists, so that a resume never starts over if all are lost."""
        if self._has_saved and not self._is_marked:
            self._is_marked = True
            self._tell(directory.FIRST_CHECKPOINT)

    def keep_model(self, name: str, weights: Mapping[str, Tensor], note: Mapping[str, Any]) -> None:
        """Copy weights, which training may change, and write the copy in the background."""
        copied = {key: tensor.detach().to("cpu", copy=True) for key, tensor in weights.items()}
        self._models.append(WaitingModel(name, copied, dict(note)))

    def recall_model(self, name: str) -> Mapping[str, Tensor]:
        """Return the weights saved under this name, whether they are on disk yet or not."""
        self._background.wait()
        for model in reversed(self._models):
            if model.name == name:
                return model.weights
        return read_model(self._storage, name)[0]

    def _write_models(self) -> None:
        # A model leaves the list only when it is on disk, so a full disk loses none.
        while self._models:
            model = self._models[0]
            write_model(self._storage, model.name, model.weights, model.note)
            self._models.pop(0)

    def _finish(self, run: Run) -> None:
        """Wait for the last checkpoint; retry a few times if it fails."""
        for attempt in range(MAX_FAILURES_AT_END):
            self._background.wait()
            if not self._background.errors:
                self._report_lost()
                self._mark_first()
                return
            self._report()
            time.sleep(0.2 * attempt)
            self.save(run)
        self._background.wait()
        if self._background.errors:
            raise self._background.errors[0]

    def _report(self) -> None:
        while self._background.errors:
            error = self._background.errors.pop(0)
            if isinstance(error, RunTaken) or not isinstance(error, LudusError | OSError):
                raise error
            # Pending models are not retried at every boundary, only with the next save.
            self._has_failed = True
            self._tell("checkpoint_failed", reason=str(error))
            if self._settings.on_failure == "stop":
                raise error

    def wait(self) -> None:
        """Return when nothing is being written; report failures that were not reported yet."""
        self._background.wait()
        for error in self._background.errors:
            if isinstance(error, RunTaken):
                raise error
            self._tell("checkpoint_failed", reason=str(error))
        self._background.errors.clear()
