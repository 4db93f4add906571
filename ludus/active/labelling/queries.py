"""The open queries of a run as files and as text, so that a person can answer them while no process runs.

queries/round-0003.json           the rows and the valid answers; sealed by its own hash
queries/round-0003.safetensors    the inputs of these rows, if they are one tensor; the seal has its hash

Shapes: Q open queries; C channels, H height, W width of an image.
"""

from __future__ import annotations

import csv
import hashlib
import io
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
from ludus.show.terminal import clean
from ludus.store.directory import read_note, way_to_resume
from ludus.store.storage import Storage
from ludus.store.strict_json import parse_json

FORMAT = 2
"""Files of format 1 have no seal: a resume rewrites them."""
_MOST_BYTES = 1 << 28
_FILE = re.compile(r"round-([0-9]+)\.json")
_SHADES = " ░▒▓█"
_WIDEST = 48
_MOST_NUMBERS = 60


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
    fields = {key: value for key, value in asdict(queries).items() if key != "inputs"}
    fields = {"format": FORMAT, **fields, "inputs_sha256": digest}
    files.write(
        f"{name}.json", json.dumps({**fields, "seal": _seal(fields)}, indent=1).encode() + b"\n"
    )


def _seal(fields: Mapping[str, Any]) -> str:
    """Return the hash of all fields except the seal, to detect changes."""
    return hashlib.sha256(json.dumps(fields, allow_nan=False).encode()).hexdigest()


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
            f"{storage.place}/{name} is damaged ({problem}); to have it rewritten:"
            f" {way_to_resume(storage.place, read_note(storage))}"
        ) from None


def _read(storage: Storage, name: str) -> Queries:
    fields = parse_json(storage.read(name, limit=_MOST_BYTES), source=name)
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        raise ValueError("it is not one this ludus reads")
    if fields.pop("seal", None) != _seal(fields):
        raise ValueError("it has changed since it was written")
    rows = [states.whole(states.rows(fields, "rows"), at) for at in range(len(fields["rows"]))]
    if len({*rows}) < len(rows):
        raise ValueError("a row stands twice")
    digest = fields["inputs_sha256"]
    inputs_Q = None if digest is None else _tensor(storage, name, digest)
    if inputs_Q is not None and len(inputs_Q) != len(rows):
        raise ValueError(f"it has {len(rows)} rows and {len(inputs_Q)} inputs")
    classes = None if fields["num_classes"] is None else states.whole(fields, "num_classes")
    return Queries(
        round=states.whole(fields, "round"),
        rows=rows,
        num_classes=classes,
        class_names=_texts(fields["class_names"]),
        columns=_texts(fields["columns"]),
        picture=None if fields["picture"] is None else _sides(fields, inputs_Q),
        inputs=inputs_Q,
    )


def _sides(fields: Mapping[str, Any], inputs_Q: Tensor | None) -> list[int]:
    """Return channels, height and width, checked against the inputs."""
    found = states.rows(fields, "picture", length=3)
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


def shown(queries: Queries, place: int) -> str:
    """Return the query at this index as text; empty if it cannot be shown."""
    if queries.inputs is None:
        return ""
    example = queries.inputs[place]
    if queries.picture is not None:
        return as_blocks(example.reshape(queries.picture))
    return _as_numbers(example.flatten(), queries.columns)


def as_blocks(picture_CHW: Tensor) -> str:
    """Return an image in five shades of grey, two characters per pixel; a large one is downscaled."""
    share_HW = shrunk(picture_CHW[:3].float().nan_to_num().mean(0, keepdim=True), _WIDEST)[0]
    places = (share_HW * (len(_SHADES) - 1)).round().long().tolist()
    return "\n".join("".join(2 * _SHADES[place] for place in line).rstrip() for line in places)


def shrunk(pixels_CHW: Tensor, widest: int) -> Tensor:
    """Return an image of at most this many pixels a side, contrast-stretched to 0 to 1."""
    height, width = pixels_CHW.shape[1:]
    scale = max(height, width) / widest
    if scale > 1:
        size = max(round(height / scale), 1), max(round(width / scale), 1)
        pixels_CHW = torch.nn.functional.adaptive_avg_pool2d(pixels_CHW, size)
    low, high = pixels_CHW.min(), pixels_CHW.max()
    return (pixels_CHW - low) / (high - low if high > low else 1.0)


def _as_numbers(numbers: Tensor, columns: list[str] | None) -> str:
    values = [f"{float(number):.5g}" for number in numbers[:_MOST_NUMBERS]]
    if columns is not None and len(columns) == len(numbers):
        widest = max((len(name) for name in columns[:_MOST_NUMBERS]), default=0)
        named = zip(columns, values, strict=False)
        lines = [f"  {clean(name):<{widest}}  {value}" for name, value in named]
    else:
        rows = [values[start : start + 10] for start in range(0, len(values), 10)]
        lines = ["  " + "  ".join(f"{value:>8}" for value in row) for row in rows]
    left = len(numbers) - len(values)
    return "\n".join([*lines, f"  and {left} numbers more"] if left else lines)


def as_csv(queries: Queries, rows: list[int]) -> str:
    """Return these queries as a CSV table to fill in: row, empty label, and the example's features."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    inputs_Q, columns = queries.inputs, queries.columns
    width = 0 if inputs_Q is None or queries.picture is not None else inputs_Q[:1].numel()
    if columns is None or len(columns) != width:
        columns = [f"x{at}" for at in range(width)]
    table.writerow(["row", "label", *(_not_taken(name) for name in columns)])
    for row in rows:
        found = inputs_Q[queries.rows.index(row)].flatten() if inputs_Q is not None else None
        numbers = [] if found is None or not width else [f"{float(one):.6g}" for one in found]
        table.writerow([row, "", *numbers])
    return text.getvalue()


def _not_taken(column: str) -> str:
    return f"{column}_" if column.strip().casefold() in ("row", "label") else column
