"""Connection to an object store: the few calls of fsspec that ludus makes, with readable errors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ludus.core.errors import LudusError, StorageError

SCHEMES = ("s3", "memory")
_OPTIONS: dict[str, dict[str, Any]] = {
    "s3": {
        # Objects written by another process must be visible.
        "use_listings_cache": False,
        "config_kwargs": {"connect_timeout": 10, "read_timeout": 60},
    },
}


class Connection:
    """Objects below one URL, by their relative names."""

    def __init__(self, url: str) -> None:
        scheme, _, path = url.partition("://")
        if scheme not in SCHEMES:
            known = ", ".join(f"{name}://" for name in SCHEMES)
            raise StorageError(
                f"'{scheme}://' in {url} is not a storage that ludus knows; use a directory, or one of"
                f" {known}"
            )
        if not path.strip("/"):
            raise StorageError(f"{url} names no place; give one such as {scheme}://bucket/runs")
        self._url = url
        self._root = path.strip("/")
        self._bucket = self._root.partition("/")[0]
        self._scheme = scheme
        self._fs = _file_system(scheme)

    def _key(self, name: str) -> str:
        key = f"{self._root}/{name}" if name else self._root
        return f"/{key}" if self._scheme == "memory" else key

    def _errors(self, name: str, deed: str) -> contextlib.AbstractContextManager[None]:
        return storage_errors(f"{self._url}/{name}" if name else self._url, deed)

    def check(self) -> None:
        """Raise StorageError if the bucket does not exist or may not be read."""
        if self._scheme == "memory":
            return
        with self._errors("", "reached"):
            try:
                self._fs.ls(self._bucket, detail=False)
            except FileNotFoundError:
                raise StorageError(
                    f"{self._url}: there is no bucket '{self._bucket}'; make it, or correct the name"
                ) from None

    def size(self, name: str) -> int | None:
        """Return the size of an object in bytes; None if it does not exist."""
        with self._errors(name, "read"):
            try:
                about = self._fs.info(self._key(name))
            except FileNotFoundError:
                return None
            return int(about["size"]) if about["type"] == "file" else None

    def modified(self, name: str) -> float | None:
        """Return when an object was written, in seconds by the store's clock; None if it does not exist."""
        with self._errors(name, "read"):
            try:
                return float(self._fs.modified(self._key(name)).timestamp())
            except FileNotFoundError:
                return None

    def below(self, name: str) -> list[str]:
        """Return the names of all objects below this one, relative to it, sorted."""
        start = self._key(name).strip("/") + "/"
        with self._errors(name, "read"):
            try:
                found = self._fs.find(self._key(name), withdirs=False)
            except FileNotFoundError:
                return []
        keys = sorted(str(key).strip("/") for key in found)
        return [key[len(start) :] for key in keys if key.startswith(start)]

    def get(self, name: str) -> bytes:
        with self._errors(name, "read"):
            return bytes(self._fs.cat_file(self._key(name)))

    def fetch(self, name: str, path: Path) -> None:
        """Download an object to a local file."""
        with self._errors(name, "read"):
            self._fs.get_file(self._key(name), str(path))

    def put(self, name: str, data: bytes) -> None:
        with self._errors(name, "written"):
            self._fs.pipe_file(self._key(name), data)

    def send(self, path: Path, name: str) -> None:
        """Upload a local file."""
        with self._errors(name, "written"):
            self._fs.put_file(str(path), self._key(name))

    def copy(self, source: str, name: str) -> None:
        with self._errors(name, "written"):
            self._fs.cp_file(self._key(source), self._key(name))

    def delete(self, name: str) -> None:
        with self._errors(name, "removed"), contextlib.suppress(FileNotFoundError):
            self._fs.rm_file(self._key(name))


def _file_system(scheme: str) -> Any:
    try:
        import fsspec

        return fsspec.filesystem(scheme, **_OPTIONS.get(scheme, {}))
    except ImportError as error:
        raise StorageError(
            f"{scheme}:// needs a package that is not installed ({error}); pip install 'ludus[cloud]'"
        ) from None


@contextlib.contextmanager
def storage_errors(place: str, deed: str) -> Iterator[None]:
    """Turn any error of an object store's library into a StorageError.

    Each library has its own errors, few of which are OSErrors.
    """
    try:
        yield
    except LudusError:
        raise
    except Exception as error:
        raise StorageError(f"{place} cannot be {deed}: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    kind, text = type(error).__name__, " ".join(str(error).split())[:200].rstrip(".")
    if isinstance(error, PermissionError) or "Credentials" in kind:
        return (
            f"access was refused ({text}); check the credentials (AWS_ACCESS_KEY_ID and"
            " AWS_SECRET_ACCESS_KEY, or AWS_PROFILE) and what they may do"
        )
    if isinstance(error, ConnectionError | TimeoutError) or "Connect" in kind or "Timeout" in kind:
        return f"the connection failed ({text}); check the network and AWS_ENDPOINT_URL"
    if isinstance(error, FileNotFoundError):
        return "it is not there"
    return getattr(error, "strerror", None) or text or kind
