"""Access to a server: its bearer token, and the hosts under which it may be addressed."""

from __future__ import annotations

import contextlib
import hmac
import ipaddress
import os
import secrets
import stat
from collections.abc import Iterable
from pathlib import Path

from ludus.core.errors import ConfigError, StorageError
from ludus.store.files import open_plain, sync_directory

TOKEN_VARIABLE = "LUDUS_SERVER_TOKEN"
_FEWEST = 16
_MOST = 512


def read_token(root: Path) -> str:
    """Return the token of the environment, else that of ROOT/token, which is made if there is none."""
    given = os.environ.get(TOKEN_VARIABLE)
    if given is not None:
        return _checked(given, TOKEN_VARIABLE)
    path = root / "token"
    with contextlib.suppress(FileNotFoundError):
        return _checked(_private(path), str(path))
    token = new_token()
    temporary = root / f"token.tmp-{os.getpid()}"
    temporary.unlink(missing_ok=True)
    try:
        descriptor = os.open(temporary, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
        sync_directory(root)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror}") from error
    return token


def new_token() -> str:
    """Return a random token."""
    # Clients of Tinker's API accept only tokens that begin with tml-; those of OpenAI's accept any.
    return f"tml-{secrets.token_urlsafe(32)}"


def _private(path: Path) -> str:
    """Return the content of a file that only its owner can read."""
    if not path.exists():
        raise FileNotFoundError
    with open_plain(path) as file:
        about = os.fstat(file.fileno())
        if stat.S_IMODE(about.st_mode) & 0o077 or about.st_uid != os.geteuid():
            raise ConfigError(
                f"{path} can be read by other users, so its token is no secret; delete the file, and a"
                " new token is made"
            )
        return file.read(_MOST + 1).decode(errors="replace").strip()


def _checked(token: str, source: str) -> str:
    is_plain = token.isascii() and token.isprintable() and " " not in token
    if not is_plain or not _FEWEST <= len(token) <= _MOST:
        raise ConfigError(
            f"{source} holds no token: it takes {_FEWEST} to {_MOST} printable ASCII characters without"
            " spaces"
        )
    return token


class Access:
    """Decides whether a request may be answered."""

    def __init__(self, token: str, allowed_hosts: Iterable[str]) -> None:
        self._bearer = f"Bearer {token}".encode()
        self._hosts = {"localhost", *(host.lower() for host in allowed_hosts)}
        self._last: bytes | None = None
        """The last Host header that was let in: nearly all requests have the same."""

    def knows_token(self, authorization: bytes | None) -> bool:
        """Return whether the Authorization header holds the token."""
        given = authorization or b""
        if given[:7].lower() == b"bearer ":
            given = b"Bearer " + given[7:].strip()
        return hmac.compare_digest(given, self._bearer)

    def knows_host(self, header: bytes | None) -> bool:
        """Return whether the Host header is an IP address or a name of this server.

        A web page may make its own name point to 127.0.0.1 and so reach the server from a browser; then
        the Host header holds that name.
        """
        if header == self._last and header is not None:
            return True
        is_known = bool(header) and self._is_known((header or b"").decode("latin-1").lower())
        if is_known:
            self._last = header
        return is_known

    def _is_known(self, host: str) -> bool:
        host = host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]
        if host in self._hosts:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        return True
