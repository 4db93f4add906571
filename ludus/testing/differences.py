"""Describe where two runs that should have ended alike differ."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ludus.store import checkpoint
from ludus.store.bests import best_number, every_best
from ludus.store.directory import read_lines
from ludus.store.places import open_storage
from ludus.store.storage import Storage


@dataclass(frozen=True)
class Ending:
    """Everything by which two ended runs are compared, byte for byte."""

    state: str
    metrics: str
    models: tuple[tuple[str, str], ...]
    heard: tuple[str, ...]


def ending_of(place: str | Path) -> Ending:
    """Return the ending of a run that has ended."""
    storage = open_storage(place)
    # Older best models depend on how often the run was saved; those that are named do not.
    saved = checkpoint.read(storage, checkpoint.numbers(storage)[-1])
    named = [best["model"] for best in every_best(saved.manifest)]
    models = tuple(
        (name, storage.sha256(f"models/{name}/weights.safetensors"))
        for name in storage.names("models")
        if "." not in name and (best_number(name) is None or f"models/{name}" in named)
    )
    heard = saved.state.get("callback.recorder", {}).get("heard", [])
    metrics = hashlib.sha256(storage.read("metrics.jsonl")).hexdigest()
    return Ending(checkpoint.digest_of(saved.state), metrics, models, tuple(heard))


def differences(unbroken: str | Path, other: str | Path) -> list[str]:
    """Return what differs between the ends of two runs, as text; empty means the same bytes."""
    one, two = open_storage(unbroken), open_storage(other)
    expected, found = ending_of(unbroken), ending_of(other)
    lines = []
    if expected.metrics != found.metrics:
        lines.append(_first_metric(one, two))
    if expected.state != found.state:
        lines.append(f"the state of {' and '.join(_parts(one, two))}")
    if expected.models != found.models:
        names = sorted({name for name, _ in {*expected.models} ^ {*found.models}})
        lines.append(f"the models {' and '.join(names)}")
    return lines


def _parts(one: Storage, two: Storage) -> list[str]:
    """Return the parts whose last states differ."""
    states = [checkpoint.read(at, checkpoint.numbers(at)[-1]).state for at in (one, two)]
    digests = [
        {name: checkpoint.digest_of({"part": part}) for name, part in state.items()}
        for state in states
    ]
    first, second = digests
    return [name for name in {**first, **second} if first.get(name) != second.get(name)]


def _first_metric(one: Storage, two: Storage) -> str:
    """Return the first number of metrics.jsonl that differs, and when it was written."""
    rows, others = (read_lines(at, "metrics.jsonl") for at in (one, two))
    for row, other in zip(rows, others, strict=False):
        names = [name for name in {**row, **other} if row.get(name) != other.get(name)]
        if names:
            name = next((n for n in names if "/" in n), names[0])
            return f"{name}{_when(row)} ({row.get(name)} at first, {other.get(name)} later)"
    return f"metrics.jsonl ({len(rows)} lines at first, {len(others)} later)"


def _when(row: Mapping[str, Any]) -> str:
    counts = {n: v for n, v in row.items() if "/" not in n and isinstance(v, int) and v}
    name = next((name for name in ("opt_steps", *counts) if name in counts), None)
    return "" if name is None else f" at {name} {counts[name]}"
