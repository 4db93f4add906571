"""Files that clients have uploaded, each in a directory of its own.

files/<id>/file.json   what the API says of it
files/<id>/data        its bytes; none once it is deleted
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, Literal

from ludus.core.errors import StorageError
from ludus.store.files import write_durably
from ludus.store.local import LocalStorage
from ludus.text.server.errors import ApiError, no_such_file
from ludus.text.server.ids import is_id, new_id

Purpose = Literal["assistants", "batch", "fine-tune", "vision", "user_data", "evals"]
_CHUNK = 1 << 20


@dataclass(frozen=True)
class StoredFile:
    """What is known of a file."""

    id: str
    number: int
    """Its place in the order of uploads."""
    bytes: int
    sha256: str
    created_at: int
    filename: str
    purpose: str
    is_keyed: bool = False
    """Whether its id follows from an idempotency key, so that it is not made again once deleted."""
    is_deleted: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return the object of the API."""
        return {
            "id": self.id,
            "object": "file",
            "bytes": self.bytes,
            "created_at": self.created_at,
            "filename": self.filename,
            "purpose": self.purpose,
            "status": "processed",
            "status_details": None,
            "expires_at": None,
        }


class FileStore:
    """The uploaded files of a root; safe to call from several threads."""

    def __init__(self, storage: LocalStorage) -> None:
        self._storage = storage
        self._guard = threading.Lock()
        self._files: dict[str, StoredFile] = {}
        found = (self._read(name) for name in storage.names("files") if is_id(name))
        for file in sorted(found, key=lambda file: file.number):
            self._files[file.id] = file
        self._number = max((file.number for file in self._files.values()), default=0)

    def _read(self, file_id: str) -> StoredFile:
        name = f"files/{file_id}/file.json"
        try:
            return StoredFile(**json.loads(self._storage.read(name)))
        except (ValueError, TypeError) as error:
            raise StorageError(
                f"{self._storage.place}/{name} is damaged ({error}); delete its directory"
            ) from error

    def add(
        self, source: BinaryIO, *, filename: str, purpose: str, idempotency_key: str | None = None
    ) -> StoredFile:
        """Keep a file durably; with an idempotency key, the same upload makes it once."""
        file_id = new_id("file", idempotency_key)
        if idempotency_key is not None and (found := self._files.get(file_id)) is not None:
            same = (_hash(source), filename, purpose)
            return _again(found, is_same=same == (found.sha256, found.filename, found.purpose))
        temporary = self._storage.make("files") / f"new.tmp-{os.getpid()}-{new_id('upload')}"
        try:
            size, sha256 = write_durably(temporary, iter(lambda: source.read(_CHUNK), b""))
            with self._guard:
                if (found := self._files.get(file_id)) is not None:
                    same = (sha256, filename, purpose)
                    known = (found.sha256, found.filename, found.purpose)
                    return _again(found, is_same=same == known)
                file = StoredFile(
                    file_id, self._number + 1, size, sha256, int(time.time()), filename, purpose,
                    is_keyed=idempotency_key is not None,
                )  # fmt: skip
                self._commit(file, lambda place: temporary.rename(place / "data"))
                self._files[file_id] = file
                self._number = file.number
        except OSError as error:
            raise StorageError(f"{temporary.parent} cannot be written: {error.strerror}") from error
        finally:
            temporary.unlink(missing_ok=True)
        return file

    def _commit(self, file: StoredFile, fill: Callable[[Path], object]) -> None:
        def whole(place: Path) -> None:
            fill(place)
            write_durably(place / "file.json", [json.dumps(asdict(file)).encode()])

        self._storage.commit(f"files/{file.id}", whole, step=lambda point: None)

    def get(self, file_id: str, param: str = "id") -> StoredFile:
        """Return a file, or raise ApiError."""
        file = self._files.get(file_id)
        if file is None or file.is_deleted:
            raise no_such_file(file_id, param)
        return file

    def path(self, file_id: str) -> Path:
        """Return where the bytes of a file are."""
        return self._storage.path(f"files/{self.get(file_id).id}/data")

    def listed(self) -> list[StoredFile]:
        """Return the files, the newest first."""
        return [file for file in reversed(list(self._files.values())) if not file.is_deleted]

    def delete(self, file_id: str) -> None:
        """Delete a file; jobs that were created with it keep their copy."""
        with self._guard:
            file = self.get(file_id)
            if file.is_keyed:
                # A late retry of the upload is still answered with this file.
                deleted = replace(file, is_deleted=True)
                name = f"files/{file_id}/file.json"
                self._storage.write(name, json.dumps(asdict(deleted)).encode())
                self._storage.path(f"files/{file_id}/data").unlink(missing_ok=True)
                self._files[file_id] = deleted
            else:
                self._storage.remove(f"files/{file_id}")
                del self._files[file_id]

    def link(self, file_id: str, place: Path) -> None:
        """Give another directory the bytes of a file, without copying them where possible."""
        source = self.path(file_id)
        try:
            os.link(source, place)
        except OSError:
            shutil.copyfile(source, place)


def _again(found: StoredFile, *, is_same: bool) -> StoredFile:
    if not is_same:
        raise reused_key()
    return found


def reused_key() -> ApiError:
    """Return the error of an idempotency key that came with another request before."""
    return ApiError(
        409,
        "This Idempotency-Key was used before with another request; use a new key for each request.",
        code="idempotency_key_reused",
        # Clients of OpenAI repeat a request after a conflict.
        headers={"x-should-retry": "false"},
    )


def _hash(source: BinaryIO) -> str:
    digest = hashlib.sha256()
    while chunk := source.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()
