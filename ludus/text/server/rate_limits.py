"""Rate limits: how many requests and tokens a minute the server accepts, and the headers that say so."""

from __future__ import annotations

import time
from collections.abc import Callable

from ludus.text.server.errors import ApiError


class Bucket:
    """An allowance for a minute, which fills again continuously."""

    def __init__(self, per_minute: int, *, clock: Callable[[], float]) -> None:
        self.size = per_minute
        self._clock = clock
        self._left = float(per_minute)
        self._at = clock()

    @property
    def left(self) -> float:
        """Return what may be taken now."""
        now = self._clock()
        self._left = min(self.size, self._left + (now - self._at) * self.size / 60)
        self._at = now
        return self._left

    def take(self, amount: float) -> None:
        """Take this much; a negative amount gives some back."""
        self._left = min(self.size, self.left - amount)

    def seconds_until(self, amount: float) -> float:
        """Return how long it is until this much may be taken."""
        return max(0.0, (amount - self.left) * 60 / self.size)


class RateLimits:
    """The limits of a server; None for no limit."""

    def __init__(
        self,
        *,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._buckets: dict[str, Bucket] = {}
        if requests_per_minute is not None:
            self._buckets["requests"] = Bucket(requests_per_minute, clock=clock)
        if tokens_per_minute is not None:
            self._buckets["tokens"] = Bucket(tokens_per_minute, clock=clock)

    def take(self, num_tokens: int) -> None:
        """Take one request of at most this many tokens, or raise ApiError with the time to wait."""
        amounts = {"requests": 1, "tokens": num_tokens}
        for name, bucket in self._buckets.items():
            amount = amounts[name]
            if amount > bucket.size:
                raise ApiError(
                    429,
                    f"Request too large: {amount} {name}, but the limit is {bucket.size} {name} per"
                    " minute; ask for less in one request.",
                    code="rate_limit_exceeded",
                    type=name,
                    headers={"x-should-retry": "false"},
                )
            if amount > bucket.left:
                seconds = bucket.seconds_until(amount)
                raise ApiError(
                    429,
                    f"Rate limit reached: {bucket.size} {name} per minute. Please try again in"
                    f" {_duration(seconds)}.",
                    code="rate_limit_exceeded",
                    type=name,
                    headers={
                        "retry-after": str(int(seconds) + 1),
                        "retry-after-ms": str(int(1000 * seconds) + 1),
                        **self.headers(),
                    },
                )
        for name, bucket in self._buckets.items():
            bucket.take(amounts[name])

    def give_back(self, num_tokens: int) -> None:
        """Give back tokens that were taken and not sampled."""
        if "tokens" in self._buckets:
            self._buckets["tokens"].take(-num_tokens)

    def headers(self) -> dict[str, str]:
        """Return the limits, what remains of them, and when they are whole again."""
        found = {}
        for name, bucket in self._buckets.items():
            found[f"x-ratelimit-limit-{name}"] = str(bucket.size)
            found[f"x-ratelimit-remaining-{name}"] = str(max(0, int(bucket.left)))
            found[f"x-ratelimit-reset-{name}"] = _duration(bucket.seconds_until(bucket.size))
        return found


def _duration(seconds: float) -> str:
    """Return a duration as OpenAI writes it: 12ms, 7.5s, 1m20s."""
    if seconds < 1:
        return f"{round(1000 * seconds)}ms"
    minutes, rest = divmod(seconds, 60)
    text = f"{rest:.3f}".rstrip("0").rstrip(".") + "s"
    return f"{int(minutes)}m{text}" if minutes else text
