"""Signals: a first SIGINT or SIGTERM pauses the run at its next boundary; a second one ends it at once.

A SIGHUP, when the terminal is closed or the connection lost, also pauses it; several may come, from the
shell and from the system, without counting as a second request. Under `nohup` it is ignored.

While an update is being compiled, which takes many seconds without any training, the first signal ends
the run too; a resume continues from the last checkpoint.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from ludus.core.run import Run

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


_under_way: list[str] = []
_open: list[Signals] = []
_stopping: list[Any] = []
"""The handlers of what executes several runs."""


@contextlib.contextmanager
def ended_at_once(while_what: str) -> Iterator[None]:
    """Let a first signal end the run at once inside the block, which takes long and cannot pause.

    The run says that it is under way, the first time.
    """
    for signals in _open[-1:]:
        signals.tell_once(f"{while_what}: some seconds, fewer once it is cached")
    _under_way.append(while_what)
    try:
        yield
    finally:
        _under_way.pop()


class Signals:
    """Handles signals during a walk; only in the main thread, elsewhere it does nothing."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._before: dict[int, Any] = {}
        self._is_asked = False
        self._told: set[str] = set()

    def tell_once(self, text: str) -> None:
        """Show a line of the run, the first time that it is given."""
        if text not in self._told:
            self._told.add(text)
            self._run.tell(text)

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            watched = [number for number in _WATCHED if not _is_left_to_others(number)]
            self._before = {number: signal.signal(number, self._heard) for number in watched}
        _open.append(self)
        return self

    def _heard(self, number: int, frame: FrameType | None) -> None:
        is_hangup = number == signal.SIGHUP
        if self._is_asked and not is_hangup:
            raise KeyboardInterrupt
        is_first = not self._run.interrupted
        self._is_asked |= not is_hangup
        self._run.interrupted = True
        name = signal.Signals(number).name
        is_at_once = bool(_under_way) and not is_hangup
        notice = "saving and stopping when the next boundary is reached; once more stops at once"
        if is_at_once:
            notice = f"stopping at once, while {_under_way[-1]}"
        display = self._run.display
        if display is None or not display.notice(f"{name}: {notice}"):
            # The handler may interrupt a write to a stream, so it writes to the terminal directly.
            with contextlib.suppress(OSError):
                os.write(2, f"\n{name}: {notice}\n".encode())
        # A run that has just come to its end is not interrupted: what executes it stops nevertheless.
        if is_first and (outer := self._before[number]) in _stopping:
            outer(number, frame)
        if is_at_once:
            raise KeyboardInterrupt

    def __exit__(self, *error: object) -> None:
        _open.remove(self)
        for number, handler in self._before.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def on_stop(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Call `stop` at the first signal inside, and yield the signals received; main thread only."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard and number != signal.SIGHUP:
            raise KeyboardInterrupt
        heard.append(number)
        stop()

    watched = [one for one in _WATCHED if not _is_left_to_others(one)]
    before = {one: signal.signal(one, hear) for one in watched}
    _stopping.append(hear)
    try:
        yield heard
    finally:
        _stopping.remove(hear)
        for one, handler in before.items():
            signal.signal(one, handler)


def _is_left_to_others(number: int) -> bool:
    """Return whether a signal stays ignored: a SIGHUP under nohup, not the SIGINT of `command &`."""
    return number == signal.SIGHUP and signal.getsignal(number) == signal.SIG_IGN
