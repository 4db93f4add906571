"""Repeat requests that failed for a passing reason, with pace, backoff and one circuit for all of them."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from ludus.core.derived_seed import derive
from ludus.text.client.config import ClientConfig
from ludus.text.client.failures import TIMEOUT, UNREACHABLE
from ludus.text.client.limits import Limits
from ludus.text.client.pace import Congestion, Pace
from ludus.text.provider import ProviderError

T = TypeVar("T")
_GRACE_SECONDS = 5.0
# What is asked for jobs and models is little and needs no pace, but goes out at most so many at a time.
_MOST_OTHER = 64


class Attempts:
    """Sends requests through one pace and one circuit.

    Once the circuit is open nothing is sent: all that wait, all that come, and after a few seconds all that
    are in flight, raise the error that opened it. A refused key and an unreachable host open it at once.
    """

    def __init__(
        self, config: ClientConfig, *, seed: int, name: str, limits: Callable[[], Limits | None]
    ) -> None:
        """`limits` returns the allowances that the provider last told."""
        self._config, self._name, self._limits = config, name, limits
        self.pace = Pace(Congestion(config.max_concurrency))
        # It decides when a request is sent again, and no result.
        self._random = random.Random(derive(seed, "text client backoff"))
        self._others = asyncio.Semaphore(_MOST_OTHER)
        self._in_flight: set[asyncio.Task[object]] = set()
        self._sleeping: set[asyncio.Task[object]] = set()
        self._seen: Limits | None = None
        self._has_answered = False
        self.stopped_by: BaseException | None = None

    def stop(self, error: BaseException, *, grace: float = _GRACE_SECONDS) -> None:
        """Open the circuit; what is in flight has `grace` seconds to be answered."""
        if self.stopped_by is not None:
            return
        self.stopped_by = error
        self.pace.stop(error)
        _cancel(self._sleeping)
        if grace <= 0:
            _cancel(self._in_flight)
        else:
            asyncio.get_running_loop().call_later(grace, _cancel, self._in_flight)

    async def sampled(
        self,
        once: Callable[[], Awaitable[T]],
        *,
        tokens: int,
        on_failure: Callable[[ProviderError], Awaitable[None]],
    ) -> T:
        """Return the answer to a request of at most this many tokens, tried as often as `retry` allows.

        `on_failure` is called for each try that failed; what it raises ends the tries.
        """
        until: float | None = None
        attempt = 0
        while True:
            attempt += 1
            started = await self.pace.start(tokens)
            until = until if until is not None else started + self._config.retry.deadline_seconds
            is_refused, is_answer = False, False
            try:
                left = until - time.monotonic()
                answer = await self._try(once, min(self._config.timeout_seconds, left))
                is_answer = True
            except ProviderError as error:
                if error is self.stopped_by:
                    raise
                failed = error
                # Too much is asked at a time: it says so, or does not answer in time, or falls over.
                is_refused = error.is_rate_limit or error.code == TIMEOUT or error.status == 503
            finally:
                self.pace.end(started, is_refused=is_refused, is_answer=is_answer)
            self._note_limits()
            if is_answer:
                return answer
            await on_failure(failed)
            if failed.is_rate_limit and failed.retry_after is not None:
                self.pace.hold(failed.retry_after)
            await self.backoff(attempt, failed, until=until)

    async def repeated(self, once: Callable[[], Awaitable[T]]) -> T:
        """Return the answer to a request without effect, repeated as `retry` allows."""
        until = time.monotonic() + self._config.retry.deadline_seconds
        attempt = 0
        while True:
            attempt += 1
            try:
                return await self.once(once, seconds=self._config.timeout_seconds)
            except ProviderError as error:
                failed = error
            await self.backoff(attempt, failed, until=until)

    async def once(self, once: Callable[[], Awaitable[T]], *, seconds: float | None = None) -> T:
        """Return the answer to a request that is tried a single time; None gives it the time of all tries."""
        if self.stopped_by is not None:
            raise self.stopped_by
        async with self._others:
            return await self._try(once, seconds or self._config.retry.deadline_seconds)

    async def _try(self, once: Callable[[], Awaitable[T]], seconds: float) -> T:
        """Try once, within some time; a cancellation by the circuit raises what opened it."""
        task = asyncio.current_task()
        assert task is not None
        self._in_flight.add(task)
        try:
            async with asyncio.timeout(seconds):
                answer = await once()
        except TimeoutError:
            late = ProviderError(
                f"{self._name} did not answer within {seconds:.3g} s ('client.timeout_seconds')",
                code=TIMEOUT,
                is_transient=True,
                is_known=False,
            )
        except asyncio.CancelledError:
            if self.stopped_by is None or task.uncancel() > 0:
                raise
            late = None
        else:
            self._has_answered = True
            return answer
        finally:
            self._in_flight.discard(task)
        raise late or self._stop_error()

    def _stop_error(self) -> BaseException:
        assert self.stopped_by is not None
        return self.stopped_by

    def _note_limits(self) -> None:
        limits = self._limits()
        if limits is not None and limits is not self._seen:
            self._seen = limits
            self.pace.note(limits)

    async def backoff(
        self, attempt: int, error: ProviderError, *, until: float | None = None
    ) -> None:
        """Wait before another try; raise the error if there may be none."""
        retry = self._config.retry
        is_first_contact = error.code == UNREACHABLE and not self._has_answered
        if error.status == 401 or is_first_contact:
            self.stop(error, grace=0.0)
        if not error.is_transient or self.stopped_by is not None:
            raise self.stopped_by or error
        longest = min(retry.max_delay_seconds, retry.first_delay_seconds * 2.0 ** (attempt - 1))
        # Full jitter: requests that failed together come back at different times.
        delay = (error.retry_after or 0.0) + self._random.uniform(0.0, longest)
        is_late = until is not None and time.monotonic() + delay >= until
        if attempt >= retry.max_attempts or is_late:
            given_up = self._given_up(attempt, error, delay=delay, is_late=is_late)
            if error.code == UNREACHABLE:
                self.stop(given_up, grace=0.0)
            raise given_up
        await self._sleep(delay)

    def _given_up(
        self, attempt: int, error: ProviderError, *, delay: float, is_late: bool
    ) -> ProviderError:
        tries = f"{attempt} {'try' if attempt == 1 else 'tries'}"
        why = f"given up after {tries}"
        if is_late and attempt < self._config.retry.max_attempts:
            why = (
                f"the next try would be in {delay:.3g} s, past 'client.retry.deadline_seconds'"
                f" ({self._config.retry.deadline_seconds:g}), so it is {why}"
            )
        return ProviderError(
            f"{error}; {why}",
            status=error.status,
            code=error.code,
            is_transient=error.is_transient,
            is_rate_limit=error.is_rate_limit,
            is_known=error.is_known,
            retry_after=error.retry_after,
        )

    async def _sleep(self, seconds: float) -> None:
        """Sleep, but not past the moment when the circuit opens."""
        task = asyncio.current_task()
        assert task is not None
        self._sleeping.add(task)
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            if self.stopped_by is None or task.uncancel() > 0:
                raise
        finally:
            self._sleeping.discard(task)
        if self.stopped_by is not None:
            raise self.stopped_by


def _cancel(tasks: set[asyncio.Task[object]]) -> None:
    for task in list(tasks):
        task.cancel()
