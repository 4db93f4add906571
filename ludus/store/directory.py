"""Run directory: its name, its first files, its events, and what they record about the run."""

from __future__ import annotations

import datetime
import json
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ludus.config import registry
from ludus.config.base import TrainerConfig, key_paths
from ludus.config.overrides import is_length, value_at
from ludus.core.errors import RunError, StorageError, nearest
from ludus.core.exactness import exact_word
from ludus.store.bests import RUNNERS_UP
from ludus.store.note import read_note as read_note, write_note
from ludus.store.places import below, open_storage, parted, runs_in
from ludus.store.storage import Storage

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")

FIRST_CHECKPOINT = "first_checkpoint"
ENDINGS = ("finished", "stopped", "interrupted", "pruned", "failed")
JOURNALS = ("events.jsonl",)
"""Files of events; a resume only appends to them."""
_LOGS = ("metrics.jsonl", "timing.jsonl", "weights.jsonl", "metrics.csv")


def run_storage(root: str | Path, name: str, *, is_resume: bool = False) -> Storage:
    """Return the storage of a run, whether it exists or not; refuse a name that could escape the root.

    An existing run may have been renamed to any single name.
    """
    is_one_name = name not in ("", ".", "..") and Path(name).name == name
    is_renamed = is_resume and is_one_name and open_storage(below(root, name)).exists("run.json")
    if not is_renamed and not _NAME.fullmatch(name):
        shown = name if len(name) <= 40 else name[:37] + "..."
        hint = "; the directory that runs are in is --root" if "/" in name else ""
        raise RunError(
            f"{shown!r} cannot name a run; use up to 100 letters, digits, '.', '_' and '-',"
            f" not starting with '.' or '-'{hint}"
        )
    storage = open_storage(below(root, name))
    storage.check_place()
    return storage


def refuse_foreign_directory(storage: Storage, *, is_resume: bool) -> None:
    """Raise RunError if a run cannot be stored here, because of another run or other files."""
    storage.check_place()
    is_run, path = storage.exists("run.json"), storage.place
    if is_run and not is_resume:
        raise RunError(
            f"{path} holds a run already; go on with it (`{way_to_resume(path)}`, fit(resume=True)),"
            " or choose another name"
        )
    if is_run:
        return
    # A run killed at its very beginning may have left these.
    ours = {"LOCK", "config.yaml", "run.json"}
    others = [name for name in storage.names("") if name.split(".tmp-")[0] not in ours]
    if others:
        raise RunError(f"{path} is not a run, yet holds {others[0]}; choose another name")


def way_to_resume(path: str | Path, note: Mapping[str, Any] | None = None) -> str:
    """Return the command that resumes a run, ready to be pasted into a shell.

    `note` is its run.json: a run with plugins needs them again, and a run of a script needs that script.
    """
    note = note or {}
    if note.get("origin") == "script":
        script = note.get("script")
        named = shlex.quote(script) if isinstance(script, str) else "the script that began it"
        return f"run {named} again with fit(resume=True)"
    names = {**dict.fromkeys(registry.loaded_plugins), **dict.fromkeys(note.get("plugins", []))}
    plugins = [word for name in names for word in ("--plugin", name)]
    return shlex.join(["ludus", "resume", str(path), *plugins])


def found_run(path: str | Path) -> Storage:
    """Return the storage of an existing run directory."""
    storage = open_storage(path)
    if not storage.exists("run.json"):
        there = {place for root in (parted(path)[0], "runs") for place in runs_in(root)}
        hint = nearest(str(path), there)
        raise RunError(
            f"{path} is not a run directory; `ludus runs` lists the runs there are"
            + (f".{hint}" if "Did you mean" in hint else "")
        )
    return storage


def write_first_files(storage: Storage, config: TrainerConfig, about: Mapping[str, Any]) -> None:
    """Write config.yaml, then run.json, which marks a run directory."""
    storage.write("config.yaml", config.to_yaml().encode())
    created = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    note = {"format": 1, "kind": config.kind, "name": storage.name, "seed": config.seed}
    note |= {"run_id": os.urandom(16).hex(), "config_hash": config.digest(), "created": created}
    write_note(storage, {**note, **about, "config": deciding(config)})


def deciding(config: TrainerConfig) -> dict[str, Any]:
    """Return the config data that affects the result: without the name and the settings."""
    return config.model_dump(exclude={"name", "settings"})


def tell_event(storage: Storage, event: str, **details: object) -> None:
    """Append an event to events.jsonl."""
    line = {"time": round(time.time(), 3), "event": event, "pid": os.getpid(), **details}
    storage.append("events.jsonl").write(json.dumps(line).encode() + b"\n")


def read_lines(storage: Storage, name: str) -> list[dict[str, Any]]:
    """Return the records of a .jsonl file; torn or damaged lines are skipped."""
    return list(_records(storage, name)) if storage.exists(name) else []


def _records(storage: Storage, name: str, *, words: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the records of a .jsonl file, or only those whose line contains one of the words."""
    wanted = [word.encode() for word in words]
    for line in storage.lines(name):
        # The file may be long: lines that cannot match are not parsed.
        if wanted and not any(word in line for word in wanted):
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            yield record


def events(storage: Storage, *kinds: str) -> Iterator[dict[str, Any]]:
    """Yield the events of these kinds, oldest first."""
    if storage.exists("events.jsonl"):
        for event in _records(storage, "events.jsonl", words=kinds):
            if event.get("event") in kinds:
                yield event


def note_checkpoint(storage: Storage, exact: str) -> None:
    """Record in run.json that a checkpoint exists, and the exactness of the run."""
    if storage.exists("run.json"):
        write_note(storage, {**read_note(storage), "has_checkpoint": True, "exact": exact})


def had_checkpoints(storage: Storage) -> bool:
    """Return whether run.json or the events say that a checkpoint was once on disk."""
    is_noted = bool(read_note(storage).get("has_checkpoint"))
    return is_noted or any(True for _ in events(storage, FIRST_CHECKPOINT))


def event_reasons(storage: Storage, event: str) -> list[str]:
    """Return the reasons in the events of this kind, oldest first."""
    return [str(found["reason"]) for found in events(storage, event) if "reason" in found]


def last_ending(storage: Storage) -> dict[str, Any] | None:
    """Return the event of the run's last end, unless it was resumed since."""
    ending = None
    for event in events(storage, *ENDINGS, "started", "resumed"):
        ending = event if event["event"] in ENDINGS else None
    if ending is not None and not _is_plain(ending):
        raise RunError(f"{storage.place}/events.jsonl does not say plainly how the run ended")
    if ending is not None and "exact" in ending:
        # Runs of older versions have true or false.
        ending["exact"] = exact_word(ending["exact"])
    return ending


def _is_plain(ending: Mapping[str, Any]) -> bool:
    counters, best, more = ending.get("counters", {}), ending.get("best"), ending.get("more_bests")
    return (
        (ending.get("exact") is None or exact_word(ending["exact"]) is not None)
        and isinstance(counters, dict)
        and all(type(value) is int for value in counters.values())
        and (best is None or _is_score(best))
        and (more is None or (isinstance(more, dict) and all(map(_is_score, more.values()))))
        and (
            isinstance(runners := ending.get(RUNNERS_UP, []), list) and all(map(_is_score, runners))
        )
    )


def _is_score(best: object) -> bool:
    return (
        isinstance(best, dict)
        and type(best.get("score")) in (int, float)
        and isinstance(best.get("metric"), str)
    )


def check_metrics(storage: Storage, manifest: Mapping[str, Any]) -> None:
    """Raise StorageError unless metrics.jsonl is unchanged up to the checkpoint's offset.

    Without it the run cannot end with the right bytes; any other lost log is started again.
    """
    name = "metrics.jsonl"
    problem = _log_problem(storage, name, manifest)
    if problem:
        raise StorageError(f"{storage.place}/{name} {problem}: restore it, or start a new run")


def log_offsets(
    storage: Storage, manifest: Mapping[str, Any], *, tell: Callable[..., None]
) -> dict[str, int]:
    """Return the offset to truncate each log to: that of the checkpoint, or 0 if it has none."""
    offsets = {**dict.fromkeys(_LOGS, 0), **manifest["offsets"]}
    for name in manifest["offsets"]:
        problem = None if name in JOURNALS else _log_problem(storage, name, manifest)
        if problem:
            tell("log_lost", reason=f"{name} {problem}; it starts empty")
            if storage.exists(name):
                storage.set_aside(name)
            offsets[name] = 0
    return offsets


def _log_problem(storage: Storage, name: str, manifest: Mapping[str, Any]) -> str | None:
    """Return what is wrong with a log up to the checkpoint's offset, or None."""
    offset = manifest["offsets"].get(name, 0)
    size = storage.size(name) if storage.exists(name) else 0
    if size < offset:
        return f"has {size} bytes, but the checkpoint saw {offset}; it was shortened or lost"
    # A log with offset 0 may be missing: a killed resume had started it again.
    digest = manifest["log_hashes"].get(name) if offset else None
    if digest is not None and storage.sha256(name, length=offset) != digest:
        return f"has changed within the {offset} bytes that the checkpoint saw"
    return None


def length_of(config: TrainerConfig) -> tuple[str, int]:
    """Return a key that sets the length of a run of this config, and its value."""
    data = deciding(config)
    paths = [path for path in key_paths(data) if is_length(path)]
    found = [
        (path, value_at(data, path)) for path in paths if isinstance(value_at(data, path), int)
    ]
    return (found or [("its length", 0)])[0]


def value_of(config: TrainerConfig, path: str) -> Any:
    """Return the value of a key that affects the result, or MISSING."""
    return value_at(deciding(config), path)


def script_name() -> str | None:
    """Return the path of the running script, or None."""
    name = sys.argv[0] if sys.argv else ""
    return name if name.endswith(".py") else None
