"""HTTP at the level of ASGI: reading bodies within a limit, and sending answers."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from ludus.text.server.errors import ApiError, too_large

Scope = MutableMapping[str, Any]
Event = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Event]]
Send = Callable[[Event], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

JSON = (b"content-type", b"application/json")
EVENTS = (b"content-type", b"text/event-stream; charset=utf-8")
_DISCARDED = 64 << 20
"""So many bytes over the limit are read and dropped, for a client that sends all before it reads."""
_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")


class Disconnected(Exception):
    """The client has gone."""


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    """Return the headers of a request; of several with one name the last."""
    return dict(scope["headers"])


def is_request_id(value: bytes | None) -> bool:
    """Return whether a client's own request id can be sent back."""
    return value is not None and _REQUEST_ID.fullmatch(value) is not None


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], limit: int) -> bytes:
    """Return the body of a request, or raise ApiError if it is larger than the limit."""
    if _is_far_over(headers, limit):
        raise too_large(limit)
    event = await receive()
    body: bytes = event.get("body", b"")
    if not event.get("more_body", False):
        if event["type"] == "http.disconnect":
            raise Disconnected
        if len(body) > limit:
            raise too_large(limit)
        return body
    pieces, size = [body], len(body)
    while event.get("more_body", False):
        event = await receive()
        if event["type"] == "http.disconnect":
            raise Disconnected
        size += len(event.get("body", b""))
        if size <= limit:
            pieces.append(event.get("body", b""))
        elif size > limit + _DISCARDED:
            break
    if size > limit:
        raise too_large(limit)
    return b"".join(pieces)


def _is_far_over(headers: Mapping[bytes, bytes], limit: int) -> bool:
    length = headers.get(b"content-length", b"0")
    return length.isdigit() and len(length) < 19 and int(length) > limit + _DISCARDED


def limited(receive: Receive, headers: Mapping[bytes, bytes], limit: int) -> Receive:
    """Return `receive` for one that reads the body itself; it raises ApiError over the limit."""
    if _is_far_over(headers, limit):
        raise too_large(limit)
    size = 0

    async def receive_within() -> Event:
        nonlocal size
        event = await receive()
        size += len(event.get("body", b""))
        if size <= limit:
            return event
        while event.get("more_body", False) and size <= limit + _DISCARDED:
            event = await receive()
            size += len(event.get("body", b""))
        raise too_large(limit)

    return receive_within


async def send_answer(
    send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    """Send a whole answer."""
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*headers, length]})
    await send({"type": "http.response.body", "body": body})


async def send_error(send: Send, error: ApiError, headers: list[tuple[bytes, bytes]]) -> None:
    """Send an error in the form of OpenAI's API."""
    more = [(name.encode(), value.encode()) for name, value in error.headers.items()]
    if error.status == 413:
        more.append((b"connection", b"close"))
    await send_answer(send, error.status, [JSON, *headers, *more], error.encoded())
