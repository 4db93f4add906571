"""Turn what goes wrong between client and provider into a ProviderError that says what can be done."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping

from ludus.text.client.limits import retry_after
from ludus.text.client.secret import Secret
from ludus.text.provider import ProviderError

UNREACHABLE = "unreachable"
"""Code of the error of a host that cannot be connected to."""
TIMEOUT = "timeout"
_NEVER_REPEATED = frozenset({400, 401, 403, 404, 405, 413, 422})
_PASSING = frozenset({408, 409, 425, 429})
# Of these statuses it is certain that nothing was done; a gateway's 502 may hide anything.
_WITHOUT_EFFECT = frozenset({400, 401, 403, 404, 405, 413, 415, 422, 429})
_WITHOUT_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MOST_TEXT = 2000


def plain(text: str, secret: Secret | None = None) -> str:
    """Return a provider's text without the key and without control characters, whole."""
    shown = secret.removed_from(text) if secret else text
    return _CONTROL.sub(" ", shown).strip()


def refusal(
    status: int,
    headers: Mapping[str, str],
    body: object,
    *,
    name: str,
    secret: Secret | None,
) -> ProviderError:
    """Return the error for a response with a status of 300 or more; `body` is its JSON, or its text."""
    message, code = _told(body)
    message = plain(message, secret)[:_MOST_TEXT]
    request_id = plain(headers.get("x-request-id", ""), secret)[:100]
    said = f": {message}" if message else ""
    where = f" (request {request_id})" if request_id else ""
    is_passing = status in _PASSING or status >= 500
    if code in _WITHOUT_CREDIT:
        is_passing = False
    elif (given := headers.get("x-should-retry")) in ("true", "false"):
        is_passing = given == "true"
    return ProviderError(
        f"{name} {_verdict(status, code, secret)}{said}{where}",
        status=status,
        code=code,
        is_transient=is_passing and status not in _NEVER_REPEATED,
        is_rate_limit=status == 429 and code not in _WITHOUT_CREDIT,
        is_known=status in _WITHOUT_EFFECT,
        retry_after=retry_after(headers),
    )


def _verdict(status: int, code: str | None, secret: Secret | None) -> str:
    if code in _WITHOUT_CREDIT:
        return "has no credit left for this key; add some, then resume"
    if status == 401:
        if secret is None:
            return "asks for an API key (401); set 'key' in the provider's section"
        return f"does not accept the key in {secret.place} (401); set the right one, then resume"
    if status == 429:
        return "asks for fewer requests (429)"
    if status == 413:
        return "finds the request too large (413)"
    if status >= 500:
        return f"failed with {status}"
    if 300 <= status < 400:
        return f"redirects elsewhere ({status}), which is not followed; set the right 'url'"
    return f"refused the request with {status}"


def _told(body: object) -> tuple[str, str | None]:
    """Return the message and the code in the body of an error, in the forms that servers use."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        message = error.get("message") or error.get("detail") or ""
        code = error.get("code")
        # A code may be a number, as in gRPC's form; a name says more.
        if not isinstance(code, str):
            code = error.get("status") if isinstance(error.get("status"), str) else None
        return str(message), code
    return ("" if error is None else str(error)), None


def failure(error: BaseException, *, name: str, url: str, secret: Secret | None) -> ProviderError:
    """Return the error for a request that got no whole response."""
    import aiohttp

    why = plain(str(error) or type(error).__name__, secret)[:300]
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
        return ProviderError(
            f"{name} cannot be reached at {url} ({why}); check the address and that it runs, then resume",
            code=UNREACHABLE,
            is_transient=True,
            is_known=True,
        )
    if isinstance(error, asyncio.TimeoutError):
        return ProviderError(
            f"{name} did not answer in time", code=TIMEOUT, is_transient=True, is_known=False
        )
    return ProviderError(
        f"{name} broke off before its answer was whole ({why})",
        code="broken",
        is_transient=True,
        is_known=False,
    )


def unreadable(why: str, *, name: str) -> ProviderError:
    """Return the error for a response that cannot be used; another try may bring a better one."""
    return ProviderError(
        f"{name} answered with something that cannot be used: {why}",
        code="unreadable",
        is_transient=True,
        is_known=False,
    )
