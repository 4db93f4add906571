"""The open queries of a run as files, so that a person can answer them while no process runs.

queries/round-0003.json           which rows, and what may be answered
queries/round-0003.safetensors    the inputs of these rows, where they are one tensor

Shapes: Q open queries.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from ludus.core import states
from ludus.core.errors import StorageError
from ludus.core.services import Files
from ludus.store.storage import Storage
from ludus.store.strict_json import parse_json

_MOST_BYTES = 1 << 28


@dataclass(frozen=True, kw_only=True)
class Queries:
    """What is asked in one round, and how it can be shown."""

    round: int
    rows: list[int]
    """The examples that are asked for, by their row in the pool."""
    num_classes: int | None
    """How many classes there are; None where labels are numbers."""
    class_names: list[str] | None
    columns: list[str] | None
    """The name of each number of an example."""
    picture: list[int] | None
    """Channels, height and width, where an example is a picture."""
    inputs: Tensor | None
    """The inputs of the rows, a tensor of Q of them; None where they are not one tensor."""


def write_queries(files: Files, queries: Queries) -> None:
    """Write the open queries of a round; the file that names the rows comes last."""
    from safetensors.torch import save

    name, inputs_Q = _name(queries.round), queries.inputs
    is_kept = inputs_Q is not None and inputs_Q.nbytes <= _MOST_BYTES
    if is_kept and inputs_Q is not None:
        files.write(f"{name}.safetensors", save({"inputs": inputs_Q.cpu().contiguous()}))
    told = {key: value for key, value in asdict(queries).items() if key != "inputs"}
    line = json.dumps({"format": 1, **told, "has_inputs": is_kept}, indent=1)
    files.write(f"{name}.json", line.encode() + b"\n")


def read_queries(storage: Storage) -> Queries | None:
    """Return what the newest round asks for; None where nothing was ever asked."""
    names = [name for name in storage.names("queries") if name.endswith(".json")]
    if not names:
        return None
    name = f"queries/{names[-1]}"
    told = parse_json(storage.read(name, limit=_MOST_BYTES), source=name)
    try:
        return _read(storage, name, told)
    except (states.StateError, KeyError, TypeError, ValueError) as error:
        raise StorageError(
            f"{storage.place}/{name} is damaged ({error}); `ludus resume {storage.place}` writes it anew"
        ) from None


def _read(storage: Storage, name: str, told: Any) -> Queries:
    if not isinstance(told, dict) or told.get("format") != 1:
        raise ValueError("it is not one this ludus reads")
    rows = [states.whole(states.rows(told, "rows"), at) for at in range(len(told["rows"]))]
    inputs_Q = _tensor(storage, name) if told["has_inputs"] else None
    if inputs_Q is not None and len(inputs_Q) != len(rows):
        raise ValueError(f"it has {len(rows)} rows and {len(inputs_Q)} inputs")
    classes = None if told["num_classes"] is None else states.whole(told, "num_classes")
    return Queries(
        round=states.whole(told, "round"),
        rows=rows,
        num_classes=classes,
        class_names=_texts(told["class_names"]),
        columns=_texts(told["columns"]),
        picture=None if told["picture"] is None else [int(side) for side in told["picture"]],
        inputs=inputs_Q,
    )


def _tensor(storage: Storage, name: str) -> Tensor:
    from safetensors import SafetensorError
    from safetensors.torch import load

    file = name.replace(".json", ".safetensors")
    if not storage.exists(file):
        raise ValueError(f"its inputs, {file}, are not there")
    try:
        return load(storage.read(file, limit=2 * _MOST_BYTES))["inputs"]
    except SafetensorError as error:
        raise ValueError(f"its inputs cannot be read: {error}") from None


def _texts(found: object) -> list[str] | None:
    return [str(text) for text in found] if isinstance(found, list) else None


def _name(number: int) -> str:
    return f"queries/round-{number:04d}"


def picture_of(example: object, model: object) -> list[int] | None:
    """Return channels, height and width of an example, from its shape or that which its network gives it."""
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
