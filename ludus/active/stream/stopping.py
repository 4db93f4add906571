"""Signals: a first SIGINT, SIGTERM or SIGHUP stops an edge or datacenter cleanly; a second Ctrl-C at once."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Iterator
from types import FrameType

_WATCHED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def on_stop(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Call `stop` at the first signal inside, and yield the signals received; main thread only."""
    heard: list[int] = []

    def hear(number: int, frame: FrameType | None) -> None:
        if heard and number != signal.SIGHUP:
            raise KeyboardInterrupt
        heard.append(number)
        stop()

    # Under nohup a SIGHUP is ignored, and stays so.
    watched = [one for one in _WATCHED if signal.getsignal(one) != signal.SIG_IGN]
    before = {one: signal.signal(one, hear) for one in watched}
    try:
        yield heard
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
