"""Pace: how many requests are in flight at a time, adapted to what the provider takes.

Nothing here decides a result: the pace says when a request is sent, not which one or with what seed.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable

from ludus.text.client.limits import Allowance, Limits

_START = 32
_FEWEST_IN_WINDOW = 16
_TOLERANCE = 3.0
_MOST_WAIT = 60.0
# A limit whose reset was not told is asked again after this time.
_UNTOLD_RESET = 1.0


class Congestion:
    """The limit of concurrency: additive increase, multiplicative decrease.

    It doubles with each round trip (slow start) until the provider refuses a request for the first time, or a
    round trip takes three times as long without more answers a second. Then it grows by one a round trip.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limit = float(min(_START, most))
        self._is_slow_start = True
        self._cut_at = float("-inf")
        self._window_start: float | None = None
        self._window_size = float(_FEWEST_IN_WINDOW)
        self._count, self._latencies = 0, 0.0
        self._base = float("inf")
        self._rate = 0.0

    @property
    def limit(self) -> int:
        """Return the number of requests that may be in flight."""
        return int(self._limit)

    def answered(self, started: float, now: float, *, is_full: bool) -> None:
        """Take note of an answer; `is_full` says whether the limit kept requests waiting."""
        if self._window_start is None:
            self._window_start = started
        self._count += 1
        self._latencies += now - started
        if is_full:
            gain = 1.0 if self._is_slow_start else 1.0 / self._limit
            self._limit = min(self._most, self._limit + gain)
        if self._count >= self._window_size:
            self._end_window(now)

    def _end_window(self, now: float) -> None:
        mean = self._latencies / self._count
        rate = self._count / max(1e-9, now - (self._window_start or 0.0))
        # What is asked changes, so the shortest latency is forgotten slowly.
        self._base = min(self._base * 1.002, mean)
        if mean > _TOLERANCE * self._base and rate < 1.05 * self._rate:
            self._is_slow_start = False
            self._limit = max(1.0, self._limit * 0.9)
        self._rate = max(rate, 0.95 * self._rate)
        self._window_start, self._count, self._latencies = now, 0, 0.0
        self._window_size = max(float(_FEWEST_IN_WINDOW), self._limit)

    def refused(self, started: float, now: float) -> None:
        """Halve the limit, once for all requests that were sent before the last time."""
        if started >= self._cut_at:
            self._limit = max(1.0, self._limit / 2)
            self._cut_at = now
        self._is_slow_start = False


class Pace:
    """Lets requests start, in the order in which they came, as the limits allow."""

    def __init__(
        self, congestion: Congestion, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._congestion, self._clock = congestion, clock
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._in_flight = 0
        self._held_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._left: dict[str, tuple[int, float]] = {}
        self._stopped_by: BaseException | None = None

    @property
    def in_flight(self) -> int:
        """Return the number of requests in flight."""
        return self._in_flight

    async def start(self, tokens: int) -> float:
        """Wait until a request of at most this many tokens may be sent, and return the time."""
        is_first = True
        while True:
            if self._stopped_by is not None:
                raise self._stopped_by
            wait = self._wait(tokens)
            if wait <= 0 and self._in_flight < self._congestion.limit:
                break
            future = asyncio.get_running_loop().create_future()
            # One that was woken too early keeps its turn.
            (self._waiting.append if is_first else self._waiting.appendleft)(future)
            is_first = False
            if wait > 0:
                self._wake_in(wait)
            try:
                await future
            except asyncio.CancelledError:
                # One that was woken and then cancelled must wake another.
                if not future.cancelled():
                    self._wake()
                raise
        self._in_flight += 1
        for kind, amount in (("requests", 1), ("tokens", tokens)):
            if kind in self._left:
                left, until = self._left[kind]
                self._left[kind] = left - amount, until
        return self._clock()

    def _wait(self, tokens: int) -> float:
        """Return the seconds until the provider takes another request, as far as is known."""
        now = self._clock()
        wait = self._held_until - now
        for kind, amount in (("requests", 1), ("tokens", tokens)):
            if kind not in self._left:
                continue
            left, until = self._left[kind]
            if until <= now:
                del self._left[kind]
            elif left < amount:
                wait = max(wait, until - now)
        return wait

    def end(self, started: float, *, is_refused: bool = False, is_answer: bool = True) -> None:
        """Take note that a request has ended, and let others start."""
        self._in_flight -= 1
        now = self._clock()
        if is_refused:
            self._congestion.refused(started, now)
        elif is_answer:
            self._congestion.answered(started, now, is_full=bool(self._waiting))
        self._wake()

    def hold(self, seconds: float) -> None:
        """Let nothing start for this time, as the provider asked."""
        self._held_until = max(self._held_until, self._clock() + min(seconds, _MOST_WAIT))

    def note(self, limits: Limits) -> None:
        """Take the allowances that a response told."""
        self._note("requests", limits.requests)
        self._note("tokens", limits.tokens)

    def _note(self, kind: str, allowance: Allowance | None) -> None:
        if allowance is None:
            return
        reset = _UNTOLD_RESET if allowance.reset is None else min(allowance.reset, _MOST_WAIT)
        self._left[kind] = allowance.left, self._clock() + reset

    def stop(self, error: BaseException) -> None:
        """Let nothing start any more: all that wait and all that come raise this error."""
        self._stopped_by = error
        if self._timer is not None:
            self._timer.cancel()
        for future in self._waiting:
            if not future.done():
                future.set_result(None)
        self._waiting.clear()

    def _wake(self) -> None:
        free = self._congestion.limit - self._in_flight
        while self._waiting and free > 0:
            future = self._waiting.popleft()
            if not future.done():
                future.set_result(None)
                free -= 1

    def _wake_in(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None and self._timer.when() > loop.time():
            return
        self._timer = loop.call_later(seconds, self._wake)
