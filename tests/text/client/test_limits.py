"""What response headers say about rate limits."""

from __future__ import annotations

import email.utils

import pytest

from ludus.text.client.limits import Allowance, duration, read_limits, retry_after


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12ms", 0.012),
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("1h2m3.5s", 3723.5),
        ("2", 2.0),
        ("0.5", 0.5),
        ("", None),
        ("soon", None),
        ("-1", None),
        ("nan", None),
        ("inf", None),
        ("1s later", None),
    ],
)
def test_durations_of_every_form_are_read(text: str, seconds: float | None) -> None:
    assert duration(text) == (None if seconds is None else pytest.approx(seconds))


def test_milliseconds_count_before_seconds_and_both_before_a_reset() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "7s",
    }
    assert retry_after(headers) == 7
    headers["retry-after"] = "3"
    assert retry_after(headers) == 3
    headers["retry-after-ms"] = "250"
    assert retry_after(headers) == 0.25


def test_only_the_reset_of_a_limit_that_is_used_up_is_waited_for() -> None:
    headers = {
        "x-ratelimit-remaining-requests": "5",
        "x-ratelimit-reset-requests": "60s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "2s",
    }
    assert retry_after(headers) == 2


def test_a_date_is_read_as_the_time_until_it() -> None:
    date = email.utils.formatdate(1_000_030, usegmt=True)
    assert retry_after({"retry-after": date}, now=1_000_000) == 30
    assert retry_after({"retry-after": date}, now=1_000_090) == 0
    assert retry_after({"retry-after": "tomorrow"}, now=0) is None


def test_what_a_server_does_not_know_counts_as_nothing_said() -> None:
    assert read_limits({}) is None
    headers = {"x-ratelimit-remaining-requests": "-1", "x-ratelimit-reset-requests": "0"}
    assert read_limits(headers) is None
    limits = read_limits({"x-ratelimit-remaining-tokens": "9", "x-ratelimit-reset-tokens": "0"})
    assert limits is not None
    assert limits.requests is None
    assert limits.tokens == Allowance(9, None)
