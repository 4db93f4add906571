"""Read what response headers say about rate limits: how long to wait, and how much is left."""

from __future__ import annotations

import email.utils
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

_PARTS = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s|d)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_KINDS = ("requests", "tokens")


@dataclass(frozen=True)
class Allowance:
    """What is left of a rate limit, and the seconds until it is full again; None: not known."""

    left: int
    reset: float | None


@dataclass(frozen=True)
class Limits:
    """The allowances that a response tells."""

    requests: Allowance | None
    tokens: Allowance | None


def duration(text: str) -> float | None:
    """Return the seconds of a text such as `12ms`, `6m0s`, `1.5` or `20s`; None if it is none."""
    text = text.strip()
    try:
        seconds = float(text)
    except ValueError:
        parts = _PARTS.findall(text)
        if not parts or "".join(number + unit for number, unit in parts) != text:
            return None
        seconds = sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def retry_after(headers: Mapping[str, str], *, now: float | None = None) -> float | None:
    """Return the seconds that a refused request should wait, None if the provider does not say.

    `retry-after-ms` counts first, then `retry-after` (seconds, or a date), then the reset of a limit that is
    exhausted.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        if (text := headers.get(name)) is None:
            continue
        if (seconds := duration(text)) is not None:
            return seconds * unit
        if (moment := _moment(text)) is not None:
            return max(0.0, moment - (time.time() if now is None else now))
    limits = read_limits(headers)
    found = [] if limits is None else [limits.requests, limits.tokens]
    waits = [one.reset for one in found if one and one.left == 0 and one.reset is not None]
    return max(waits, default=None)


def _moment(text: str) -> float | None:
    try:
        return email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, OverflowError):
        return None


def read_limits(headers: Mapping[str, str]) -> Limits | None:
    """Return the allowances in the headers of a response, None if there are none.

    Some servers send -1, or a reset of 0, where they do not know: that counts as nothing said.
    """
    requests, tokens = (_allowance(headers, kind) for kind in _KINDS)
    return None if requests is None and tokens is None else Limits(requests, tokens)


def _allowance(headers: Mapping[str, str], kind: str) -> Allowance | None:
    left = headers.get(f"x-ratelimit-remaining-{kind}")
    # Most responses have none of these headers, so this is the whole cost of looking.
    if left is None or not left.strip().isdecimal():
        return None
    reset = duration(headers.get(f"x-ratelimit-reset-{kind}", ""))
    return Allowance(int(left), reset or None)
