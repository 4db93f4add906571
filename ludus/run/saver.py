"""Decide when to save, take the state in an instant, and write it in the background."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ludus.config import CheckpointSettings
from ludus.core.errors import LudusError, StorageError
from ludus.core.run import Every, Run, Stateful
from ludus.run import checkpoint, codec
from ludus.run.models import publish
from ludus.run.storage import Storage
from ludus.run.tensors import Snapshot

MAX_FAILURES_AT_END = 3


class Background:
    """One thread that does pieces of work in order, so that training does not wait for the disk."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self.errors: list[Exception] = []

    def start(self, work: Callable[[], None]) -> None:
        """Wait for the piece before, then begin this one."""
        self.wait()
        self._thread = threading.Thread(
            target=self._do, args=(work,), name="ludus-saver", daemon=True
        )
        self._thread.start()

    def _do(self, work: Callable[[], None]) -> None:
        # The writer must not take the core that training computes on; where the system lets a
        # thread have a priority of its own, it takes the lowest.
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        try:
            work()
        except (LudusError, OSError) as error:
            self.errors.append(error)

    @property
    def is_idle(self) -> bool:
        return self._thread is None or not self._thread.is_alive()

    def wait(self) -> None:
        """Return when nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None


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
        self._cadences = (
            Every(settings.every_opt_steps, "opt_steps"),
            Every(settings.every_epochs, "epoch"),
        )
        self._last_save = time.monotonic()
        self._num_calls = 0
        self.models: list[Callable[[], None]] = []
        """Model directories still to be written; all are, before the next checkpoint."""

    def __call__(self, run: Run) -> None:
        """Save if it is time, or if this is the last chance."""
        self._report()
        is_last = run.is_finished or run.interrupted
        if is_last or self._is_due(run):
            self.save(run)
        elif self.models and self._background.is_idle:
            self._background.start(self._write_models)
        if is_last:
            self._finish(run)

    def _is_due(self, run: Run) -> bool:
        is_due = False
        for cadence in self._cadences:
            is_due |= cadence.is_due(run)
        stages = self._settings.every_stages
        is_due |= stages > 0 and run.boundaries % stages == 0
        # Reading the clock at every boundary would cost as much as walking the plan.
        self._num_calls += 1
        if self._settings.every_seconds and self._num_calls % 16 == 0:
            is_due |= time.monotonic() - self._last_save >= self._settings.every_seconds
        return is_due

    def save(self, run: Run) -> None:
        """Take the state now; the writing goes on behind."""
        self._background.wait()
        self._report()
        self._last_save = time.monotonic()
        number = run.boundaries
        if not self._storage.flush_appends():
            self._fail(
                StorageError("the disk is full: the log is held in memory until there is space")
            )
            return
        state = {name: dict(part.state_dict()) for name, part in self._parts.items()}
        taken = codec.encode(state, keep=self._snapshot.keep)
        about = {**self._about(), "offsets": self._storage.offsets()}

        def write() -> None:
            self._write_models()
            needed = 2 * sum(tensor.nbytes for tensor in taken[1].values())
            if (free := self._storage.free_bytes()) < needed:
                raise StorageError(f"a checkpoint needs {needed} bytes of disk, {free} are free")
            checkpoint.write(self._storage, number, taken, about)
            if about["best"]:
                publish(self._storage, about["best"]["model"], "models/best")
            checkpoint.collect(self._storage, keep_last=self._settings.keep_last)

        self._background.start(write)

    def _write_models(self) -> None:
        # One is taken off the list only when it is on disk, so a full disk loses none.
        while self.models:
            self.models[0]()
            self.models.pop(0)

    def flush_models(self) -> None:
        """Return when every model directory is on disk."""
        self._background.wait()
        self._write_models()

    def _finish(self, run: Run) -> None:
        """Wait for the last checkpoint; try again a few times if it fails."""
        for attempt in range(MAX_FAILURES_AT_END):
            self._background.wait()
            if not self._background.errors:
                return
            self._report()
            time.sleep(0.2 * attempt)
            self.save(run)
        self._background.wait()
        if self._background.errors:
            raise self._background.errors[0]

    def _report(self) -> None:
        while self._background.errors:
            self._fail(self._background.errors.pop(0))

    def _fail(self, error: Exception) -> None:
        self._tell("checkpoint_failed", reason=str(error))
        if self._settings.on_failure == "stop":
            raise error

    def wait(self) -> None:
        """Return when nothing is being written."""
        self._background.wait()
