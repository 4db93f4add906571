"""The ASGI application: who may ask, the raw route of chat completions, and FastAPI for all else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ludus.core.errors import LudusError
from ludus.text.server.access import Access
from ludus.text.server.chat_route import PATH, ChatRoute
from ludus.text.server.engine import TextEngine
from ludus.text.server.errors import ApiError, server_error
from ludus.text.server.http import (
    Disconnected,
    Event,
    Headers,
    Receive,
    Scope,
    Send,
    headers_of,
    is_request_id,
    limited,
    send_error,
)
from ludus.text.server.ids import next_id
from ludus.text.server.settings import Say, ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

_NO_KEY = (
    "You didn't provide an API key. You need to provide your API key in an Authorization header using"
    " Bearer auth (i.e. Authorization: Bearer YOUR_KEY). The key of this server is in the file `token` of"
    " its root."
)
_WRONG_KEY = (
    "Incorrect API key provided. The key of this server is in the file `token` of its root."
)

TINKER = "/api/v1/"
"""Below it is Tinker's API, with its own keys, limits and errors."""
Asgi = Callable[[Scope, Receive, Send], Awaitable[None]]


class Application:
    """Answers every request, errors included, in the form of OpenAI's API, or of Tinker's."""

    def __init__(
        self,
        engine: TextEngine,
        settings: ServerSettings,
        access: Access,
        routes: FastAPI,
        tinker: Asgi,
        tell: Say,
    ) -> None:
        self._access = access
        self._settings = settings
        self._chat = ChatRoute(engine, settings)
        self._routes = routes
        self._tinker = tinker
        self._tell = tell

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await _refuse(scope, receive, send)
            return
        found = headers_of(scope)
        own = found.get(b"x-request-id")
        request_id = own if own is not None and is_request_id(own) else next_id("req_").encode()
        headers: Headers = [(b"x-request-id", request_id)]
        has_begun = False

        async def send_on(event: Event) -> None:
            nonlocal has_begun
            has_begun = True
            await send(event)

        try:
            self._check_host(found)
            if scope["path"].startswith(TINKER):
                await self._tinker(scope, receive, send_on)
                return
            self._check_token(found)
            if scope["path"] == PATH and scope["method"] == "POST":
                await self._chat(receive, send_on, headers, found)
            else:
                await self._route(scope, receive, send_on, headers, found)
        except Disconnected:
            return
        except Exception as error:
            if has_begun:
                # The answer is on its way; it ends where it stands.
                self._tell(f"request {request_id.decode()} failed: {type(error).__name__}: {error}")
                return
            await send_error(send, self._known(error, request_id), headers)

    def _check_host(self, headers: dict[bytes, bytes]) -> None:
        if not self._access.knows_host(headers.get(b"host")):
            raise ApiError(
                421,
                "The Host header does not name this server; address it by its IP address or localhost, or"
                " start it with --allow-host NAME.",
                code="invalid_host",
            )

    def _check_token(self, headers: dict[bytes, bytes]) -> None:
        authorization = headers.get(b"authorization")
        if not self._access.knows_token(authorization):
            text, code = (_WRONG_KEY, "invalid_api_key") if authorization else (_NO_KEY, None)
            raise ApiError(401, text, code=code, headers={"www-authenticate": "Bearer"})

    async def _route(
        self,
        scope: Scope,
        receive: Receive,
        send: Send,
        headers: Headers,
        found: dict[bytes, bytes],
    ) -> None:
        is_upload = scope["path"] == "/v1/files" and scope["method"] == "POST"
        limit = self._settings.max_file_bytes if is_upload else self._settings.max_body_bytes

        async def send_with_id(event: Event) -> None:
            if event["type"] == "http.response.start":
                event["headers"] = [*event["headers"], *headers]
            await send(event)

        await self._routes(scope, limited(receive, found, limit), send_with_id)

    def _known(self, error: Exception, request_id: bytes) -> ApiError:
        if isinstance(error, ApiError):
            return error
        self._tell(f"request {request_id.decode()} failed: {type(error).__name__}: {error}")
        return server_error(str(error)) if isinstance(error, LudusError) else server_error()


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Close what is not HTTP: a websocket."""
    await receive()
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008})


def make_application(
    engine: TextEngine, settings: ServerSettings, token: str, *, tell: Say
) -> Application:
    """Return the ASGI application of a server."""
    from ludus.text.server.routes import make_routes
    from ludus.text.server.tinker.routes import make_application as make_tinker

    access = Access(token, settings.allowed_hosts)
    tinker = make_tinker(engine.tinker, token)
    return Application(engine, settings, access, make_routes(engine), tinker, tell)
