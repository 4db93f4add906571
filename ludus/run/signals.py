"""A first SIGINT or SIGTERM asks the run to pause at its next boundary; a second one ends it at once."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

from ludus.core.run import Run

_WATCHED = (signal.SIGINT, signal.SIGTERM)


class Signals:
    """Listens while a run walks; only the main thread may listen, elsewhere this does nothing."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heard) for number in _WATCHED}
        return self

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if self._run.interrupted:
            raise KeyboardInterrupt
        self._run.interrupted = True
        name = signal.Signals(number).name
        text = f"\n{name}: saving at the next boundary, then stopping; once more stops at once\n"
        # A handler may interrupt a half-done write to a stream, so it goes past them to the terminal.
        with contextlib.suppress(OSError):
            os.write(2, text.encode())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
