"""The sessions, training runs and sampling sessions that there are, in a journal that survives a restart."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections.abc import Mapping
from typing import Any

from ludus.store.journal import Journal
from ludus.store.local import LocalStorage
from ludus.text.server.tinker.requests import RequestRefused
from ludus.text.server.tinker.run_record import RunRecord, SamplerRecord

Record = Mapping[str, Any]


class Registry:
    """What was created, by id; every id follows from what the client numbered, so a retry finds it again."""

    def __init__(self, storage: LocalStorage) -> None:
        self._journal = Journal(storage, "tinker")
        self._guard = threading.Lock()

    def new_session(self, idempotency_key: str | None) -> str:
        """Create a session, or return the one that was created with the same key."""
        if idempotency_key:
            name = hashlib.sha256(idempotency_key.encode()).hexdigest()[:24]
        else:
            name = secrets.token_hex(12)
        session_id = f"session-{name}"
        self._put_once(f"session/{session_id}", {})
        return session_id

    def check_session(self, session_id: str) -> None:
        """Raise RequestRefused unless there is such a session."""
        if self._get(f"session/{session_id}") is None:
            raise RequestRefused(
                f"there is no session {session_id!r}; create_session opens one", status=404
            )

    def new_run(self, record: RunRecord) -> None:
        """Create a training run; the same one again changes nothing, and another of its id is refused."""
        found = self._put_once(f"run/{record.model_id}", record.to_json())
        if RunRecord.from_json(found) != record:
            raise RequestRefused(
                f"{record.model_id} was created otherwise, from {found['base_model']}; count model_seq_id up"
            )

    def run(self, model_id: str) -> RunRecord:
        """Return the record of a training run."""
        found = self._get(f"run/{model_id}")
        if found is None:
            raise RequestRefused(
                f"there is no model {model_id!r}; create_model makes one", status=404
            )
        return RunRecord.from_json(found)

    def new_sampler(self, session_id: str, record: SamplerRecord) -> None:
        """Create a sampling session, as `new_run` does."""
        found = self._put_once(f"sampler/{session_id}", record.to_json())
        if SamplerRecord.from_json(found) != record:
            raise RequestRefused(
                f"{session_id} samples from {found['model_path'] or found['base_model']}; count"
                " sampling_session_seq_id up"
            )

    def sampler(self, session_id: str) -> SamplerRecord:
        """Return the record of a sampling session."""
        found = self._get(f"sampler/{session_id}")
        if found is None:
            raise RequestRefused(
                f"there is no sampling session {session_id!r}; create_sampling_session opens one",
                status=404,
            )
        return SamplerRecord.from_json(found)

    def _get(self, key: str) -> Record | None:
        with self._guard:
            return self._journal.get(key)

    def _put_once(self, key: str, record: Record) -> Record:
        """Return the record under a key, which is this one if there was none."""
        with self._guard:
            found = self._journal.get(key)
            if found is not None:
                return found
            self._journal.put(key, record)
            return record
