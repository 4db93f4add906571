"""Bridge: results of other threads reach an event loop in batches, with one wake-up for many."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Bridge:
    """Delivers results to one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._calls: deque[Callable[[], None]] = deque()
        self._is_woken = False

    def call(self, function: Callable[[], None]) -> None:
        """Call a function in the event loop soon; from any thread, in order."""
        self._calls.append(function)
        # The flag is cleared before the calls are taken, so none can be left behind.
        if not self._is_woken:
            self._is_woken = True
            try:
                self._loop.call_soon_threadsafe(self._deliver)
            except RuntimeError:
                # The loop has ended, and nothing waits for it any more.
                self._calls.clear()

    def _deliver(self) -> None:
        self._is_woken = False
        while self._calls:
            self._calls.popleft()()

    def wrap(self, future: Future[T]) -> asyncio.Future[T]:
        """Return a future of the event loop with the result; cancelling it cancels the other."""
        waiting: asyncio.Future[T] = self._loop.create_future()

        def settle() -> None:
            if waiting.done():
                return
            if future.cancelled():
                waiting.cancel()
            elif (error := future.exception()) is not None:
                waiting.set_exception(error)
            else:
                waiting.set_result(future.result())

        def cancel(done: asyncio.Future[T]) -> None:
            if done.cancelled():
                future.cancel()

        future.add_done_callback(lambda done: self.call(settle))
        waiting.add_done_callback(cancel)
        return waiting
