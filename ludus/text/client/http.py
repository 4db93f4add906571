"""A thin HTTP client on aiohttp: JSON in and out, kept connections, every failure a ProviderError."""

from __future__ import annotations

import contextlib
import ipaddress
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ludus.text.client.failures import failure, refusal, unreadable
from ludus.text.client.limits import Limits, read_limits
from ludus.text.client.secret import Secret
from ludus.text.provider import ProviderError

if TYPE_CHECKING:
    import aiohttp

_MOST_BYTES = 64 << 20
_CONNECT_SECONDS = 10.0
# Below the five seconds after which uvicorn closes an idle connection, maybe while a request is on its way.
_KEEP_SECONDS = 4.0


def url_problem(url: str) -> str | None:
    """Return why a text cannot be the base URL of a provider, None if it can."""
    parts = urllib.parse.urlsplit(url)
    try:
        is_whole = parts.scheme in ("http", "https") and bool(parts.hostname)
        parts.port  # noqa: B018 - raises ValueError for one that is no number
    except ValueError:
        is_whole = False
    if parts.username or parts.password:
        return "'url' holds a user or password; give it without, and the key under 'key'"
    if not is_whole or parts.query or parts.fragment:
        return f"'url' is {url[:80]!r}; give one such as https://api.openai.com/v1"
    return None


class HttpClient:
    """Sends requests to one server, between `open` and `close`, in one event loop.

    The caller limits the time that a request takes: cancelling closes its connection.
    """

    def __init__(self, url: str, key: Secret | None, *, name: str) -> None:
        """`name` is how errors call the server."""
        self.url = url.rstrip("/")
        self.name = name
        self.limits: Limits | None = None
        """The allowances in the last response that told any."""
        self._key = key
        self._proxy = _proxy_of(self.url)
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Prepare to connect; no connection is made yet."""
        import aiohttp

        # A compressed response could be larger than any limit; and a redirect could carry the key elsewhere.
        headers = {"Accept-Encoding": "identity", "User-Agent": "ludus"}
        if self._key is not None:
            headers["Authorization"] = f"Bearer {self._key.reveal()}"
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_SECONDS),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            headers=headers,
            auto_decompress=False,
        )

    async def close(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(
        self,
        path: str,
        params: Mapping[str, str] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        """Return the JSON of a GET."""
        return await self._send("GET", path, params=params, headers=headers)

    async def post(self, path: str, body: object, params: Mapping[str, str] | None = None) -> Any:
        """Return the JSON of a POST of JSON."""
        import orjson

        return await self._send("POST", path, params=params, data=orjson.dumps(body))

    async def upload(
        self, path: str, fields: Mapping[str, str], *, file_name: str, content: bytes
    ) -> Any:
        """Return the JSON of a POST of a form with a file."""
        import aiohttp

        form = aiohttp.FormData()
        for name, value in fields.items():
            form.add_field(name, value)
        form.add_field("file", content, filename=file_name, content_type="application/jsonl")
        return await self._send("POST", path, data=form)

    async def _send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        data: bytes | aiohttp.FormData | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Any:
        import aiohttp

        if self._session is None:
            raise ProviderError(f"{self.name} is not open; ask it between its open and close")
        if isinstance(data, bytes):
            headers = {"Content-Type": "application/json"}
        problem: ProviderError | None = None
        try:
            async with self._session.request(
                method,
                f"{self.url}{path}",
                params=params,
                data=data,
                headers=headers,
                proxy=self._proxy,
                allow_redirects=False,
            ) as response:
                status, found = response.status, response.headers
                body = await _read(response)
                if status >= 300 and body is not None and self._key is not None:
                    # Servers repeat a key that they refuse.
                    body = body.replace(self._key.reveal().encode(), b"***")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            problem = failure(error, name=self.name, url=self.url, secret=self._key)
        # Raised outside the handler: the context of an error of aiohttp holds the headers that were sent.
        if problem is not None:
            raise problem
        return self._parsed(status, found, body)

    def _parsed(self, status: int, headers: Mapping[str, str], body: bytes | None) -> Any:
        import orjson

        if (limits := read_limits(headers)) is not None:
            self.limits = limits
        content: Any = None
        is_json = False
        if body is not None:
            try:
                content, is_json = orjson.loads(body), True
            except ValueError:
                content = body[:_MOST_BYTES].decode(errors="replace")
        if not 200 <= status < 300:
            raise refusal(status, headers, content, name=self.name, secret=self._key)
        if body is None:
            raise unreadable(f"more than {_MOST_BYTES >> 20} MiB", name=self.name)
        if not is_json:
            raise unreadable("it is not JSON", name=self.name)
        return content


async def _read(response: aiohttp.ClientResponse) -> bytes | None:
    """Return the body, None if it is larger than any answer may be."""
    if response.content_length is not None:
        return await response.read() if response.content_length <= _MOST_BYTES else None
    chunks, size = [], 0
    async for chunk in response.content.iter_any():
        chunks.append(chunk)
        size += len(chunk)
        if size > _MOST_BYTES:
            return None
    return b"".join(chunks)


def _proxy_of(url: str) -> str | None:
    """Return the proxy that the environment names for this URL; a server on this machine has none."""
    parts = urllib.parse.urlsplit(url)
    host = parts.hostname or ""
    is_local = host == "localhost"
    with contextlib.suppress(ValueError):
        is_local = is_local or ipaddress.ip_address(host).is_loopback
    if is_local or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)
