"""Let a run go on from the checkpoint of another one: copied whole, as if it had been its own."""

from __future__ import annotations

import os
import re
import shutil
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ludus.config import strict_yaml
from ludus.config.base import TrainerConfig, current, typed
from ludus.core.errors import CheckpointError
from ludus.store.checkpoint_files import FILES, numbers, verify
from ludus.store.directory import ENDINGS, events, tell_event
from ludus.store.files import sync_directory, sync_file, write_durably
from ludus.store.local import LocalStorage
from ludus.store.manifest import sealed
from ludus.store.note import read_note, write_note
from ludus.store.own_files import is_own, is_own_folder
from ludus.store.strict_json import dump_json

_KEPT = ("LOCK", "events.jsonl", "config.yaml", "run.json", "tags.json", "checkpoints", "wandb")
"""Names that a run keeps, or gets by itself, when it takes over a checkpoint."""
_IMMUTABLE = ("segments", "segments-copy", "models")
_PASSING = re.compile(r"\.(tmp|trash|aside)-")
"""Names of what is being written, removed or set aside."""


def take_over(source: LocalStorage, target: LocalStorage, event: str, **about: object) -> None:
    """Give a run the newest checkpoint of another, with its config, its logs, models and segments.

    The name, events and tags of the run stay, and files that are not a run's; its id is a new one, under
    which services show all that is in the log now. Files that never change are linked, where the disk can.
    The `event` and `about` are written to its events. It may be interrupted at any time, and called again.
    """
    number = _newest(source)
    manifest, note = verify(source, number), read_note(source)
    config = _config(source, manifest, target.name)
    with target.lock():
        own = read_note(target) if target.exists("run.json") else {}
        for name in target.names(""):
            if _is_replaced(target, name) or name == "checkpoints":
                target.remove(name)
        for name in source.names(""):
            if _is_replaced(source, name) and not _PASSING.search(name):
                _copy(source.path(name), target.root / name, links=name in _IMMUTABLE)
        sync_directory(target.root)
        kept: dict[str, Any] = {"created": own["created"]} if "created" in own else {}
        fresh: dict[str, Any] = {**kept, "run_id": os.urandom(16).hex(), "name": target.name}
        target.write("config.yaml", config.to_yaml().encode())
        write_note(target, {**note, **fresh, "has_checkpoint": True})
        _commit(source, target, number, {**manifest, "run_id": fresh["run_id"]})
        _tell(target, event, {"boundary": number, **about})
        target.close()


def _is_replaced(storage: LocalStorage, name: str) -> bool:
    """Return whether a name in the directory of a run belongs to what it has trained and logged."""
    is_run = is_own_folder(name) if storage.path(name).is_dir() else is_own(name)
    return is_run and name not in _KEPT


def _config(storage: LocalStorage, manifest: Mapping[str, Any], name: str) -> TrainerConfig:
    """Return the config that a checkpoint was trained with, under another name."""
    source = f"{storage.place}/config.yaml"
    text = storage.read("config.yaml", limit=strict_yaml.MAX_BYTES)
    written = strict_yaml.parse(text, source=source)
    settings = written.get("settings") if isinstance(written, dict) else None
    data = {**manifest["config"], "name": name, "settings": settings}
    return typed(current(data, source=source), source=source)


def _newest(storage: LocalStorage) -> int:
    found = numbers(storage)
    if not found:
        raise CheckpointError(f"{storage.place} has no checkpoint yet, so no run can go on from it")
    return found[-1]


def _commit(
    source: LocalStorage, target: LocalStorage, number: int, fields: Mapping[str, Any]
) -> None:
    name = f"checkpoints/{number:010d}"

    def fill(folder: Path) -> None:
        for file in FILES:
            _copy(source.path(f"{name}/{file}"), folder / file, links=True)
        unsealed = {key: value for key, value in fields.items() if key != "seal"}
        write_durably(folder / "manifest.json", [dump_json(sealed(unsealed))])

    target.commit(name, fill, step=lambda point: None)


def _tell(storage: LocalStorage, event: str, about: Mapping[str, Any]) -> None:
    """Write the event, and that the run waits here, unless they were written before a kill."""
    if not any(about.items() <= found.items() for found in events(storage, event)):
        tell_event(storage, event, **about)
    last = deque(events(storage, event, *ENDINGS, "started", "resumed"), maxlen=1)
    if last and last[0]["event"] == event:
        tell_event(storage, "interrupted", reason=f"{event} at boundary {about['boundary']}")


def _copy(source: Path, target: Path, *, links: bool) -> None:
    """Copy a file or a directory; a file that never changes is linked where the disk can."""
    if source.is_dir():
        target.mkdir(exist_ok=True)
        for path in sorted(source.iterdir()):
            _copy(path, target / path.name, links=links)
        sync_directory(target)
        return
    if links:
        try:
            os.link(source, target)
            return
        except OSError:
            pass
    shutil.copyfile(source, target)
    sync_file(target)
