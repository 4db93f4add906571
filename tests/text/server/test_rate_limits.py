"""Rate limits: an allowance that fills again, and the headers that clients read."""

from __future__ import annotations

import pytest

from ludus.text.server.errors import ApiError
from ludus.text.server.rate_limits import RateLimits


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_limits_there_are_no_headers() -> None:
    limits = RateLimits(requests_per_minute=None, tokens_per_minute=None)
    limits.take(10**9)
    assert limits.headers() == {}


def test_requests_over_the_limit_are_told_when_to_come_back() -> None:
    clock = Clock()
    limits = RateLimits(requests_per_minute=2, tokens_per_minute=None, clock=clock)
    limits.take(1)
    limits.take(1)
    with pytest.raises(ApiError) as caught:
        limits.take(1)
    error = caught.value
    assert (error.status, error.type, error.code) == (429, "requests", "rate_limit_exceeded")
    assert "2 requests per minute. Please try again in 30s." in str(error)
    assert error.headers["retry-after"] == "31"
    assert error.headers["x-ratelimit-limit-requests"] == "2"
    assert error.headers["x-ratelimit-remaining-requests"] == "0"
    assert error.headers["x-ratelimit-reset-requests"] == "1m0s"
    clock.now += 30
    limits.take(1)


def test_a_refused_request_takes_nothing() -> None:
    clock = Clock()
    limits = RateLimits(requests_per_minute=10, tokens_per_minute=100, clock=clock)
    limits.take(90)
    with pytest.raises(ApiError, match="100 tokens per minute"):
        limits.take(20)
    found = limits.headers()
    assert found["x-ratelimit-remaining-requests"] == "9"
    assert found["x-ratelimit-remaining-tokens"] == "10"
    assert found["x-ratelimit-reset-tokens"] == "54s"


def test_tokens_that_were_not_sampled_are_given_back() -> None:
    limits = RateLimits(requests_per_minute=None, tokens_per_minute=100, clock=Clock())
    limits.take(100)
    limits.give_back(60)
    limits.take(60)


def test_a_request_over_the_whole_limit_is_not_to_be_repeated() -> None:
    limits = RateLimits(requests_per_minute=None, tokens_per_minute=100, clock=Clock())
    with pytest.raises(ApiError, match="Request too large: 101 tokens") as caught:
        limits.take(101)
    assert caught.value.headers == {"x-should-retry": "false"}
