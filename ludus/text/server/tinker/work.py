"""The one thread that does the operations of all training runs, each run's in order."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ludus.text.server.settings import Say
from ludus.text.server.tinker.training_run import TrainingRun

_MOST_LOADED = 4


class Work:
    """Runs take turns, an operation each; only the last four used keep their model in memory."""

    def __init__(self, tell: Say) -> None:
        self._tell = tell
        self._changed = threading.Condition()
        self._turns: deque[TrainingRun] = deque()
        self._loaded: dict[str, TrainingRun] = {}
        """The runs whose model is in memory, the last used last."""
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, run: TrainingRun) -> None:
        """Do the operations of a run that have come and are next."""
        with self._changed:
            if self._is_closed or run in self._turns:
                return
            self._turns.append(run)
            if self._thread is None:
                self._thread = threading.Thread(target=self._go, name="tinker-work", daemon=True)
                self._thread.start()
            self._changed.notify()

    def close(self) -> None:
        """Finish the operation in progress and stop; the others are done after the next start."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _go(self) -> None:
        while (run := self._next()) is not None:
            if not run.is_ready:
                continue
            self._guarded(run.do_next, run)
            self._keep_loaded(run)
            self.add(run)

    def _next(self) -> TrainingRun | None:
        with self._changed:
            while not self._turns and not self._is_closed:
                self._changed.wait()
            return None if self._is_closed else self._turns.popleft()

    def _keep_loaded(self, run: TrainingRun) -> None:
        self._loaded.pop(run.record.model_id, None)
        self._loaded[run.record.model_id] = run
        while len(self._loaded) > _MOST_LOADED:
            oldest = self._loaded.pop(next(iter(self._loaded)))
            self._guarded(oldest.release, oldest)

    def _guarded(self, deed: Callable[[], None], run: TrainingRun) -> None:
        try:
            deed()
        except Exception as error:
            # One run that cannot go on must not stop the others.
            self._tell(f"{run.record.model_id} stopped: {type(error).__name__}: {error}")
