"""Saved weights by their tinker:// paths: states to go on training from, and models to sample from."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ludus.core.errors import LudusError
from ludus.store.files import write_durably
from ludus.store.local import LocalStorage
from ludus.store.strict_json import dump_json, parse_json
from ludus.text.server.tinker.operations import Operation
from ludus.text.server.tinker.places import EPHEMERAL, NOTE, find_saved
from ludus.text.server.tinker.requests import RequestRefused
from ludus.text.server.tinker.run_record import RunRecord, SamplerRecord
from ludus.text.server.tinker.training_model import STATE, TrainingModel

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_MOST_EPHEMERAL = 8

Register = Callable[[str, SamplerRecord], None]
"""Makes a sampling session known under its id, durably."""
Order = Callable[[str], int]
"""Returns when a path was last sampled from: higher is later."""


class SavedWeights:
    """The directories of all saved weights of a server, `<run>/<kind>/<name>`."""

    def __init__(self, storage: LocalStorage, register: Register, last_use: Order) -> None:
        self._storage, self._register, self._last_use = storage, register, last_use

    def directory(self, path: str) -> Path:
        """Return the directory of a path; raise RequestRefused if there is none."""
        return find_saved(self._storage.root, path)

    def state_of(self, path: str) -> Path:
        """Return the directory of a saved state of training."""
        directory = self.directory(path)
        if not (directory / STATE).is_dir():
            raise RequestRefused(
                f"{path} was saved for sampling and holds no state of training; use one that save_state saved"
            )
        return directory

    def note(self, path: str) -> dict[str, Any]:
        """Return what was written about saved weights: the run's record, and what made them."""
        file = self.directory(path) / NOTE
        found = parse_json(file.read_bytes(), source=str(file))
        if not isinstance(found, dict):
            raise LudusError(f"{file} is damaged; restore it from a backup")
        return found

    def save_state(
        self, record: RunRecord, model: TrainingModel, operation: Operation
    ) -> dict[str, Any]:
        """Save the state of training under a name, and return the answer."""
        name = operation.body["path"] or f"{operation.seq_id:010d}"
        may_replace = bool(operation.body["overwrite"])
        self._write(record, "weights", name, operation, model.save, may_replace=may_replace)
        return {"path": f"tinker://{record.model_id}/weights/{name}", "type": "save_weights"}

    def save_sampler(
        self, record: RunRecord, model: TrainingModel, operation: Operation
    ) -> dict[str, Any]:
        """Save a model to sample from; without a name, and open a sampling session on it."""
        number = operation.body["sampling_session_seq_id"]
        name = operation.body["path"] or f"{EPHEMERAL}{operation.seq_id:010d}"
        path = f"tinker://{record.model_id}/sampler_weights/{name}"
        self._write(record, "sampler_weights", name, operation, model.save_model)
        answer = {"path": path, "type": "save_weights_for_sampler"}
        if number is None:
            return answer
        session_id = f"{record.model_id.partition(':')[0]}:sample:{number}"
        self._register(session_id, SamplerRecord(record.base_model, path, number))
        self._remove_old(record, path)
        return answer | {"sampling_session_id": session_id}

    def _write(
        self,
        record: RunRecord,
        kind: str,
        name: str,
        operation: Operation,
        save: Callable[[Path], None],
        *,
        may_replace: bool = False,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise RequestRefused(
                f"weights cannot be named {name[:80]!r}; use up to 100 letters, digits, '.', '_' and '-'"
            )
        place = f"{record.folder}/{kind}/{name}"
        path = f"tinker://{record.model_id}/{kind}/{name}"
        if self._storage.exists(place):
            if self.note(path)["seq_id"] == operation.seq_id:
                # The server was killed after it was written and before the outcome was kept.
                return
            if not may_replace:
                raise RequestRefused(f"there are saved weights {path} already; choose another name")
            self._storage.remove(place)
        note = {"seq_id": operation.seq_id, "record": record.to_json()}
        note["user_metadata"] = operation.body["user_metadata"]

        def fill(folder: Path) -> None:
            save(folder)
            write_durably(folder / NOTE, [dump_json(note)])

        self._storage.commit(place, fill, step=lambda point: None)

    def _remove_old(self, record: RunRecord, newest: str) -> None:
        """Delete unnamed weights, but for those last sampled from."""
        place = f"{record.folder}/sampler_weights"
        names = [name for name in self._storage.names(place) if name.startswith(EPHEMERAL)]
        paths = {f"tinker://{record.model_id}/sampler_weights/{name}": name for name in names}
        paths.pop(newest, None)
        oldest = sorted(paths, key=lambda path: (self._last_use(path), path))
        for path in oldest[: max(0, len(oldest) - _MOST_EPHEMERAL + 1)]:
            if "." not in paths[path]:
                self._storage.remove(f"{place}/{paths[path]}")
