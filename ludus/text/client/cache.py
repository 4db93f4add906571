"""The response cache: answers by provider and request, shared by all runs that name its directory.

Every request has a seed, so an answer may stand for the same request at any time. A file is named by a hash,
is written whole or not at all, and one that cannot be read is asked for again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from ludus.core.errors import ConfigError, StorageError
from ludus.store.files import open_plain
from ludus.text.chat import ChatAnswer, ChatRequest

_MOST_BYTES = 64 << 20


class ResponseCache:
    """A directory of answers."""

    def __init__(self, directory: Path, *, provider: str) -> None:
        """`provider` is what distinguishes models of the same name: its kind and its address."""
        self._directory, self._provider = directory, provider
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(
                f"'client.cache' is {directory}, which cannot be made: {error.strerror}"
            ) from None

    def get(self, request: ChatRequest) -> ChatAnswer | None:
        """Return the answer to the same request, if it is there."""
        path = self._path(request)
        if not path.exists():
            return None
        try:
            with open_plain(path) as file:
                found = json.loads(file.read(_MOST_BYTES))
            if found["digest"] != request.digest() or found["provider"] != self._provider:
                return None
            answer = ChatAnswer.from_json(found["answer"])
        except (StorageError, OSError, KeyError, TypeError, ValueError, RecursionError):
            return None
        return answer if len(answer.choices) == request.n else None

    def put(self, request: ChatRequest, answer: ChatAnswer) -> None:
        """Keep an answer; a cache that cannot be written keeps nothing."""
        path = self._path(request)
        record = {
            "provider": self._provider,
            "digest": request.digest(),
            "answer": answer.to_json(),
        }
        temporary = path.with_name(f"{path.name}.tmp-{os.getpid()}")
        with contextlib.suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            temporary.write_text(json.dumps(record))
            temporary.replace(path)

    def _path(self, request: ChatRequest) -> Path:
        name = hashlib.sha256(f"{self._provider}\n{request.digest()}".encode()).hexdigest()
        return self._directory / name[:2] / f"{name[2:]}.json"
