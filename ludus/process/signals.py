"""A first SIGINT or SIGTERM asks the run to pause at its next boundary; a second one ends it at once.

So does a SIGHUP, when the terminal is closed or the connection lost; but of these any number may
come, from the shell and from the system, and nobody is impatient. Under `nohup` it is ignored.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Any

from ludus.core.run import Run

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_awaited: list[str] = []


@contextlib.contextmanager
def stopping_only_when(something: str) -> Iterator[None]:
    """Say, to a signal that comes inside, what it waits for: something that takes long and cannot pause."""
    _awaited.append(something)
    try:
        yield
    finally:
        _awaited.pop()


class Signals:
    """Listens while a run walks; only the main thread may listen, elsewhere this does nothing."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._before: dict[int, Any] = {}
        self._is_asked = False

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            watched = [number for number in _WATCHED if not _is_left_to_others(number)]
            self._before = {number: signal.signal(number, self._heard) for number in watched}
        return self

    def _heard(self, number: int, frame: FrameType | None) -> None:
        is_hangup = number == signal.SIGHUP
        if self._is_asked and not is_hangup:
            raise KeyboardInterrupt
        self._is_asked |= not is_hangup
        self._run.interrupted = True
        name = signal.Signals(number).name
        awaited = _awaited[-1] if _awaited else "the next boundary is reached"
        text = f"\n{name}: saving and stopping when {awaited}; once more stops at once\n"
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


def _is_left_to_others(number: int) -> bool:
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
