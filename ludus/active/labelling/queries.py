"""The open queries of a run as files, so that a person can answer them while no process runs.

queries/round-0003.json           the rows and the valid answers; sealed by its own hash
queries/round-0003.safetensors    the inputs of these rows, if they are one tensor; the seal has its hash

Shapes: Q open queries.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import CheckpointError, StorageError
from ludus.core.services import Files
from ludus.store.directory import read_note, way_to_resume
from ludus.store.storage import Storage
from ludus.store.strict_json import parse_json

FORMAT = 2
"""Files of format 1 have no seal: a resume rewrites them."""
_MOST_BYTES = 1 << 28
_FILE = re.compile(r"round-([0-9]+)\.json")


@dataclass(frozen=True, kw_only=True)
class Queries:
    """The open queries of one round, and how to show them."""

    round: int
    rows: list[int]
    """The rows of the queried examples in the pool."""
    num_classes: int | None
    """Number of classes; None for regression."""
    class_names: list[str] | None
    columns: list[str] | None
    """The name of each feature of an example."""
    picture: list[int] | None
    """Channels, height and width, if an example is an image."""
    inputs: Tensor | None
    """The inputs of the Q rows; None if they are not one tensor."""


def write_queries(files: Files, queries: Queries) -> None:
    """Write the open queries of a round; the file that lists the rows is written last."""
    from safetensors.torch import save

    name, inputs_Q, digest = _name(queries.round), queries.inputs, None
    if inputs_Q is not None and inputs_Q.nbytes <= _MOST_BYTES:
        data = save({"inputs": inputs_Q.cpu().contiguous()})
        files.write(f"{name}.safetensors", data)
        digest = hashlib.sha256(data).hexdigest()
    told = {key: value for key, value in asdict(queries).items() if key != "inputs"}
    told = {"format": FORMAT, **told, "inputs_sha256": digest}
    files.write(
        f"{name}.json", json.dumps({**told, "seal": _seal(told)}, indent=1).encode() + b"\n"
    )


def _seal(told: Mapping[str, Any]) -> str:
    """Return the hash of all fields except the seal, to detect changes."""
    return hashlib.sha256(json.dumps(told, allow_nan=False).encode()).hexdigest()


def read_queries(storage: Storage) -> Queries | None:
    """Return the queries of the newest round; None if there are none."""
    found = [name for name in map(_FILE.fullmatch, storage.names("queries")) if name]
    if not found:
        return None
    name = f"queries/{max(found, key=lambda name: int(name[1]))[0]}"
    try:
        return _read(storage, name)
    except (states.StateError, CheckpointError, KeyError, TypeError, ValueError) as error:
        problem = str(error).removeprefix(f"{name}: ")
        raise StorageError(
            f"{storage.place}/{name} is damaged ({problem}); to have it written anew:"
            f" {way_to_resume(storage.place, read_note(storage))}"
        ) from None


def _read(storage: Storage, name: str) -> Queries:
    told = parse_json(storage.read(name, limit=_MOST_BYTES), source=name)
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        raise ValueError("it is not one this ludus reads")
    if told.pop("seal", None) != _seal(told):
        raise ValueError("it has changed since it was written")
    rows = [states.whole(states.rows(told, "rows"), at) for at in range(len(told["rows"]))]
    if len({*rows}) < len(rows):
        raise ValueError("a row stands twice")
    digest = told["inputs_sha256"]
    inputs_Q = None if digest is None else _tensor(storage, name, digest)
    if inputs_Q is not None and len(inputs_Q) != len(rows):
        raise ValueError(f"it has {len(rows)} rows and {len(inputs_Q)} inputs")
    classes = None if told["num_classes"] is None else states.whole(told, "num_classes")
    return Queries(
        round=states.whole(told, "round"),
        rows=rows,
        num_classes=classes,
        class_names=_texts(told["class_names"]),
        columns=_texts(told["columns"]),
        picture=None if told["picture"] is None else _sides(told, inputs_Q),
        inputs=inputs_Q,
    )


def _sides(told: Mapping[str, Any], inputs_Q: Tensor | None) -> list[int]:
    """Return channels, height and width, checked against the inputs."""
    found = states.rows(told, "picture", length=3)
    sides = [states.whole(found, at, at_least=1) for at in range(3)]
    if inputs_Q is not None and len(inputs_Q) and math.prod(sides) != inputs_Q[0].numel():
        raise ValueError(f"its inputs are no pictures of {sides}")
    return sides


def _tensor(storage: Storage, name: str, digest: str) -> Tensor:
    from safetensors import SafetensorError
    from safetensors.torch import load

    file = name.replace(".json", ".safetensors")
    if not storage.exists(file):
        raise ValueError(f"its inputs, {file}, are not there")
    data = storage.read(file, limit=2 * _MOST_BYTES)
    if hashlib.sha256(data).hexdigest() != digest:
        raise ValueError(f"its inputs, {file}, have changed since they were written")
    try:
        inputs_Q = load(data)["inputs"]
    except SafetensorError as error:
        raise ValueError(f"its inputs cannot be read: {error}") from None
    if inputs_Q.is_complex():
        raise ValueError("its inputs are complex numbers, which cannot be shown")
    return inputs_Q


def _texts(found: object) -> list[str] | None:
    return [str(text) for text in found] if isinstance(found, list) else None


def _name(number: int) -> str:
    return f"queries/round-{number:04d}"


def picture_of(example: object, model: object) -> list[int] | None:
    """Return channels, height and width of an example, from its shape or its network's input shape."""
    if not isinstance(example, Tensor) or example.dtype == torch.bool:
        return None
    shape: Sequence[int] = example.shape
    sides = [getattr(model, key, None) for key in ("channels", "height", "width")]
    if all(isinstance(side, int) for side in sides):
        channels, height, width = (int(side or 0) for side in sides)
        if channels * height * width == example.numel():
            return [channels, height, width]
    if len(shape) == 2:
        return [1, *shape]
    return list(shape) if len(shape) == 3 and shape[0] in (1, 3, 4) else None
