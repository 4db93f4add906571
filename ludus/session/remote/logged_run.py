"""Facts about a run that a service shows, as its directory has them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ludus.config import strict_yaml
from ludus.config.leaves import leaves
from ludus.core.counters import SHARED
from ludus.core.errors import LudusError
from ludus.session.record import Record
from ludus.store import note
from ludus.store.bests import FIRST
from ludus.store.directory import last_ending
from ludus.store.groups import SWEEP, group_of
from ludus.store.storage import Storage
from ludus.store.tags import read_tags

Leaf = bool | int | float | str


@dataclass(frozen=True)
class LoggedRun:
    """Name, group, tags and config of a run, and the id under which services know it.

    The id is that of run.json: it is made once, when the run begins, and a resume finds it there.
    """

    run_id: str
    name: str
    kind: str
    group: str | None
    tags: tuple[str, ...]
    config: Mapping[str, Leaf]
    """Every key of the config by its path, as in learning_rate_schedule.kind."""
    counter_names: tuple[str, ...]


def logged_run(storage: Storage, *, asked_by: str) -> LoggedRun:
    """Return the facts about the run in this directory."""
    if not storage.exists("run.json"):
        raise LudusError(
            f"the logger '{asked_by}' needs the directory of a run, and {storage.place} is none"
        )
    about = note.read_note(storage)
    own = about.get("counters")
    return LoggedRun(
        run_id=str(about["run_id"]),
        name=storage.name,
        kind=str(about["kind"]),
        group=group_of(about) or about.get(SWEEP),
        tags=_tags(storage),
        config=config_of(storage),
        counter_names=(*SHARED, *_texts(own)),
    )


def _tags(storage: Storage) -> tuple[str, ...]:
    """Return the tags that people gave the run; a damaged file has none."""
    with contextlib.suppress(LudusError):
        return tuple(read_tags(storage))
    return ()


def config_of(storage: Storage) -> dict[str, Leaf]:
    """Return the config of the run, flattened."""
    source = f"{storage.place}/config.yaml"
    return flattened(strict_yaml.parse(storage.read("config.yaml"), source=source))


def flattened(data: Mapping[str, object]) -> dict[str, Leaf]:
    """Return the leaves of a config by their dotted paths; what a service cannot hold is text."""
    found = leaves(data)
    return {
        path: value if isinstance(value, Leaf) else _as_text(value) for path, value in found.items()
    }


def _as_text(data: object) -> str:
    if isinstance(data, list):
        return f"[{', '.join('null' if value is None else str(value) for value in data)}]"
    return "null" if data is None else str(data)


def _texts(value: object) -> tuple[str, ...]:
    found = value if isinstance(value, list) else []
    return tuple(text for text in found if isinstance(text, str))


@dataclass(frozen=True)
class LoggedEnd:
    """How a run ended: the event in events.jsonl, and its best model."""

    status: str
    """finished, stopped, interrupted, pruned or failed."""
    score: float | None
    metric: str | None
    model: str | None
    """Folder of the best model, if it is there."""
    digest: str | None
    """Hash of its weights."""
    step: int
    """The x value of the last record."""


def logged_end(storage: Storage) -> LoggedEnd:
    """Return how the run in this directory ended."""
    ending: Mapping[str, Any] = last_ending(storage) or {"event": "failed"}
    best = ending.get("best") or {}
    weights = f"{FIRST}/weights.safetensors"
    is_kept = bool(best) and storage.exists(weights)
    return LoggedEnd(
        status=ending["event"],
        score=best.get("score"),
        metric=best.get("metric"),
        model=FIRST if is_kept else None,
        digest=storage.sha256(weights) if is_kept else None,
        step=Record(ending.get("counters", {}), {}).step,
    )
